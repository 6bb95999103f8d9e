//! Mutations: of bits and bytes, and of what formats are made of.

use crate::draws::Draws;

/// What formats are made of, and where readers go wrong.
const WORDS: &[&[u8]] = &[
    b"{",
    b"}",
    b"[",
    b"]",
    b"\"",
    b"\\",
    b":",
    b",",
    b"\n",
    b"\r\n",
    b"=",
    b"#",
    b"\0",
    b"null",
    b"true",
    b"-1",
    b"0",
    b"1e999",
    b"-1e999",
    b"NaN",
    b"18446744073709551615",
    b"9223372036854775808",
    b"4294967296",
    b"0.0000001",
    b"\\u0000",
    b"\\ud800",
    b"\xff\xfe",
    b"\xef\xbb\xbf",
    b"\xc3\x28",
    b"../../",
    b"/dev/zero",
    b"F32",
    b"BF16",
    b"I64",
    b"data_offsets",
    b"shape",
    b"dtype",
    b"text",
    b"step",
    b"[[",
    b"'''",
    b"\"\"\"",
];

/// Numbers that lengths and offsets are made of.
const NUMBERS: [u64; 10] =
    [0, 1, 0x7f, 0xff, 0x7fff, 0xffff, 0x7fff_ffff, 0xffff_ffff, 0x7fff_ffff_ffff_ffff, u64::MAX];

/// Mutates bytes in one to four ways; `others` are of the same format.
pub fn mutate(draws: &mut Draws, bytes: &mut Vec<u8>, others: &[&[u8]]) {
    for _ in 0..=draws.below(4) {
        once(draws, bytes, others);
    }
}

/// Where something is changed: at the beginning as often as anywhere, since formats say there what they are.
fn place(draws: &mut Draws, length: usize) -> usize {
    if draws.one_in(3) { draws.place(length.min(128)) } else { draws.place(length) }
}

fn once(draws: &mut Draws, bytes: &mut Vec<u8>, others: &[&[u8]]) {
    let length = bytes.len();
    let at = place(draws, length);
    let end = length.min(at + 1 + draws.place(64));
    match draws.below(12) {
        0 if length > 0 => bytes[at] ^= 1 << draws.below(8),
        1 if length > 0 => bytes[at] = draws.bits() as u8,
        2 => bytes.truncate(at),
        3 => drop(bytes.drain(at..end)),
        4 => {
            let again = bytes[at..end].to_vec();
            bytes.splice(at..at, again);
        }
        5 | 6 => {
            let word = draws.one_of(WORDS).to_vec();
            let over = if draws.one_in(2) { at..length.min(at + word.len()) } else { at..at };
            bytes.splice(over, word);
        }
        7 => {
            let number = draws.one_of(&NUMBERS).wrapping_add(draws.below(3)).wrapping_sub(1);
            let width = *draws.one_of(&[1, 2, 4, 8]);
            let mut number = number.to_le_bytes();
            if draws.one_in(2) {
                number[..width].reverse();
            }
            bytes.splice(at..length.min(at + width), number[..width].iter().copied());
        }
        // As deep as readers are built to go, and deeper.
        8 => {
            let word: &[u8] = draws.one_of::<&[u8]>(&[b"[", b"{\"a\":", b"(", b"[[a."]);
            let deep = word.repeat(1 << draws.below(15));
            bytes.splice(at..at, deep);
        }
        9 => digits(draws, bytes, at),
        10 => {
            let other = draws.one_of(others);
            let from = draws.place(other.len());
            bytes.truncate(at);
            bytes.extend_from_slice(&other[from..]);
        }
        _ => {
            let (from, until) = (draws.place(length), draws.place(length));
            let moved = bytes[from.min(until)..from.max(until)].to_vec();
            bytes.splice(at..end, moved.into_iter().take(4096));
        }
    }
}

/// Puts another number in place of the next one that is written in digits.
fn digits(draws: &mut Draws, bytes: &mut Vec<u8>, at: usize) {
    let digit = |byte: &u8| byte.is_ascii_digit();
    let Some(start) = bytes[at..].iter().position(digit).map(|start| at + start) else { return };
    let count = bytes[start..].iter().take_while(|byte| digit(byte)).count();
    let number = draws.one_of(&NUMBERS).wrapping_add(draws.below(3)).to_string();
    bytes.splice(start..start + count, number.into_bytes());
}
