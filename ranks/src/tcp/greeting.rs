//! Greetings: each end of a connection says which rank it is, and proves that it knows the secret of the run without sending it.
//!
//! | | the end that connects sends | the end that accepts sends |
//! |---|---|---|
//! | 1 | a hello: the protocol's name, and a nonce | the same, with a nonce of its own |
//! | 2 | its [`Card`], and a proof: an HMAC-SHA256 of both nonces, the card and the rank that it wants | |
//! | 3 | | a proof of its own over the same |
//!
//! Nonces make each proof good for one connection, and proofs of both ends differ. Nothing after a greeting is proved or encrypted.

use std::fmt::{self, Debug, Formatter};
use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::time::Instant;

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

/// The first bytes of a hello, by which no other program is taken for a rank. The last byte is the version.
const NAME: [u8; 8] = *b"tightrp\x02";
pub const NONCE: usize = 32;
/// Bytes of a hello.
pub const HELLO: usize = NAME.len() + NONCE;
/// Bytes of a card.
pub const CARD: usize = 10;
/// Bytes of a proof.
pub const PROOF: usize = 32;

/// A secret that all ranks of a run know, and nobody else.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Vec<u8>);

impl Debug for Secret {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.write_str("Secret(..)")
    }
}

impl Secret {
    /// The variable of the environment that holds it.
    pub const VARIABLE: &str = "TIGHTROPE_SECRET";

    /// A secret of these bytes, without white space at their ends; `None` if there are none.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.trim_ascii();
        (!bytes.is_empty()).then(|| Self(bytes.to_vec()))
    }

    /// The secret that the environment holds, text or not; `None` if it holds none.
    #[must_use]
    pub fn from_env() -> Option<Self> {
        Self::new(std::env::var_os(Self::VARIABLE)?.as_encoded_bytes())
    }

    /// A new secret of 64 hexadecimal digits, for the environment of ranks.
    ///
    /// # Errors
    /// A system that has no random numbers.
    #[cfg(unix)]
    pub(crate) fn random() -> io::Result<String> {
        Ok(nonce()?.iter().map(|byte| format!("{byte:02x}")).collect())
    }
}

/// The rank at one end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Card {
    pub rank: u32,
    /// The number of ranks of the run.
    pub count: u32,
    /// The port at which the rank listens.
    pub port: u16,
}

impl Card {
    fn to_bytes(self) -> [u8; CARD] {
        let mut bytes = [0; CARD];
        bytes[..4].copy_from_slice(&self.rank.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.count.to_le_bytes());
        bytes[8..].copy_from_slice(&self.port.to_le_bytes());
        bytes
    }

    pub fn from_bytes(bytes: [u8; CARD]) -> Self {
        let [r0, r1, r2, r3, c0, c1, c2, c3, p0, p1] = bytes;
        Self {
            rank: u32::from_le_bytes([r0, r1, r2, r3]),
            count: u32::from_le_bytes([c0, c1, c2, c3]),
            port: u16::from_le_bytes([p0, p1]),
        }
    }
}

/// An end of a connection.
#[derive(Clone, Copy)]
pub enum End {
    Connecting,
    Accepting,
}

/// The part of a greeting that both ends prove to have seen.
pub struct Transcript {
    pub connecting: [u8; NONCE],
    pub accepting: [u8; NONCE],
    pub card: Card,
    /// The rank of the end that accepts.
    pub host: u32,
}

impl Transcript {
    /// The proof of one end.
    pub fn proof(&self, secret: Option<&Secret>, end: End) -> [u8; PROOF] {
        self.mac(secret, end).finalize().into_bytes().into()
    }

    /// True if this is the proof of that end, compared in a time that doesn't depend on how much of it is right.
    pub fn is_proved(&self, secret: Option<&Secret>, end: End, proof: &[u8]) -> bool {
        self.mac(secret, end).verify_slice(proof).is_ok()
    }

    fn mac(&self, secret: Option<&Secret>, end: End) -> Hmac<Sha256> {
        let key = secret.map_or(&[][..], |secret| &secret.0);
        let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of every length");
        mac.update(&NAME);
        mac.update(match end {
            End::Connecting => b"c",
            End::Accepting => b"a",
        });
        mac.update(&self.connecting);
        mac.update(&self.accepting);
        mac.update(&self.card.to_bytes());
        mac.update(&self.host.to_le_bytes());
        mac
    }
}

/// Bytes that nobody has seen before.
pub fn nonce() -> io::Result<[u8; NONCE]> {
    let mut bytes = [0; NONCE];
    getrandom::fill(&mut bytes).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(bytes)
}

pub fn hello(nonce: &[u8; NONCE]) -> [u8; HELLO] {
    let mut bytes = [0; HELLO];
    bytes[..NAME.len()].copy_from_slice(&NAME);
    bytes[NAME.len()..].copy_from_slice(nonce);
    bytes
}

/// True if a hello may begin with these bytes.
pub fn begins_hello(bytes: &[u8]) -> bool {
    bytes.iter().zip(&NAME).all(|(byte, expected)| byte == expected)
}

/// The nonce of a hello; `None` if it's none.
pub fn nonce_of(hello: &[u8]) -> Option<[u8; NONCE]> {
    hello.strip_prefix(&NAME)?.try_into().ok()
}

/// Greets the rank `host` by a connection to it, all of it before the deadline.
///
/// # Errors
/// A peer that says nothing in time, another program, and one that doesn't know the secret.
pub fn greet(
    stream: &TcpStream,
    secret: Option<&Secret>,
    card: Card,
    host: usize,
    until: Instant,
) -> io::Result<()> {
    let connecting = nonce()?;
    send(stream, &hello(&connecting), until)?;
    let mut theirs = [0; HELLO];
    read(stream, &mut theirs, until)?;
    let accepting =
        nonce_of(&theirs).ok_or_else(|| io::Error::other("another program listens there"))?;
    let transcript = Transcript { connecting, accepting, card, host: host as u32 };
    send(stream, &card.to_bytes(), until)?;
    send(stream, &transcript.proof(secret, End::Connecting), until)?;
    let mut proof = [0; PROOF];
    let refused = || {
        let variable = Secret::VARIABLE;
        let reason = format!(
            "it refused this rank's greeting: its {variable} is another one, one of both has \
             none, it counts other ranks, or it has this rank already"
        );
        io::Error::other(reason)
    };
    read(stream, &mut proof, until).map_err(|error| match error.kind() {
        io::ErrorKind::TimedOut => error,
        _ => refused(),
    })?;
    if !transcript.is_proved(secret, End::Accepting, &proof) {
        return Err(io::Error::other("who listens there doesn't know the secret of the run"));
    }
    stream.set_write_timeout(None)?;
    stream.set_read_timeout(None)
}

fn left(until: Instant) -> io::Result<std::time::Duration> {
    let left = until.saturating_duration_since(Instant::now());
    match left.is_zero() {
        true => Err(late()),
        false => Ok(left),
    }
}

fn late() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "who listens there didn't say all in time")
}

/// Reads all of these bytes before a deadline, however slowly they come.
pub fn read(mut stream: &TcpStream, bytes: &mut [u8], until: Instant) -> io::Result<()> {
    let mut filled = 0;
    while filled < bytes.len() {
        stream.set_read_timeout(Some(left(until)?))?;
        match stream.read(&mut bytes[filled..]) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => filled += read,
            Err(error) => retried(error)?,
        }
    }
    Ok(())
}

/// Sends all of these bytes before a deadline.
pub fn send(mut stream: &TcpStream, mut bytes: &[u8], until: Instant) -> io::Result<()> {
    while !bytes.is_empty() {
        stream.set_write_timeout(Some(left(until)?))?;
        match stream.write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(sent) => bytes = &bytes[sent..],
            Err(error) => retried(error)?,
        }
    }
    Ok(())
}

/// Passes over an error after which the same is tried again, until the deadline.
fn retried(error: io::Error) -> io::Result<()> {
    match error.kind() {
        io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Ok(()),
        _ => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proofs_are_those_of_hmac_sha256() {
        let transcript = Transcript {
            connecting: [1; NONCE],
            accepting: [2; NONCE],
            card: Card { rank: 3, count: 4, port: 5 },
            host: 0,
        };
        // hmac.new(b"key", b"tightrp\x02c" + b"\1" * 32 + b"\2" * 32 + struct.pack("<IIHI", 3, 4, 5, 0), "sha256") of Python 3.
        let hex = |proof: [u8; PROOF]| proof.map(|byte| format!("{byte:02x}")).concat();
        let key = Secret::new(b"  key\n");
        assert_eq!(hex(transcript.proof(key.as_ref(), End::Connecting)), CONNECTING);
        assert_eq!(hex(transcript.proof(None, End::Accepting)), ACCEPTING_WITHOUT_KEY);
    }

    const CONNECTING: &str = "f674d2af35d2afde67e11a251c289b49d364675d99e61c935dcc844b1ad1b9a5";
    const ACCEPTING_WITHOUT_KEY: &str =
        "faaa669d03fee306289f9b0c03477fb35ab2c69a203c65ab2970e773e9beaa08";

    #[test]
    fn a_proof_is_good_for_one_connection_one_end_and_one_secret() {
        let transcript = || Transcript {
            connecting: [1; NONCE],
            accepting: [2; NONCE],
            card: Card { rank: 3, count: 4, port: 5 },
            host: 0,
        };
        let key = Secret::new(b"key");
        let proof = transcript().proof(key.as_ref(), End::Connecting);
        let proved = |transcript: Transcript, key: Option<&Secret>, end| {
            transcript.is_proved(key, end, &proof)
        };
        assert!(proved(transcript(), key.as_ref(), End::Connecting));
        assert!(!proved(transcript(), key.as_ref(), End::Accepting));
        assert!(!proved(transcript(), None, End::Connecting));
        assert!(!proved(transcript(), Secret::new(b"Key").as_ref(), End::Connecting));
        let card = |rank, count, port| Card { rank, count, port };
        for other in [
            Transcript { connecting: [3; NONCE], ..transcript() },
            Transcript { accepting: [3; NONCE], ..transcript() },
            Transcript { card: card(2, 4, 5), ..transcript() },
            Transcript { card: card(3, 5, 5), ..transcript() },
            Transcript { card: card(3, 4, 6), ..transcript() },
            Transcript { host: 1, ..transcript() },
        ] {
            assert!(!proved(other, key.as_ref(), End::Connecting));
        }
        assert!(!transcript().is_proved(key.as_ref(), End::Connecting, &proof[..PROOF - 1]));
        assert!(!transcript().is_proved(key.as_ref(), End::Connecting, &[]));
    }

    #[test]
    fn a_secret_is_never_shown() {
        let secret = Secret::new(b"hidden").unwrap();
        assert_eq!(format!("{secret:?}"), "Secret(..)");
        assert_eq!(Secret::new(b" \n"), None);
    }
}
