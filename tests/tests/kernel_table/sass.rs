//! Machine code as NVIDIA's disassembler prints it: the loops of a kernel, by the branches that go back, and what an iteration
//! issues.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::ops::RangeInclusive;

/// What executes an instruction, where that limits how many are executed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Tensor cores.
    Tensor,
    /// Sums and products of floats.
    Float,
    /// Functions such as powers and reciprocals.
    Special,
    /// Integers, bits, comparisons and conversions.
    Integer,
    /// Shared memory, read or written by a warp.
    Shared,
    /// Global memory, read or written by a warp.
    Global,
    /// All else: moves, branches, barriers, addresses that a whole warp shares.
    Other,
}

/// Kinds, in the order of the table's columns.
pub const KINDS: [Kind; 7] = [
    Kind::Tensor,
    Kind::Float,
    Kind::Special,
    Kind::Integer,
    Kind::Shared,
    Kind::Global,
    Kind::Other,
];

/// Threads of a warp.
const WARP: u64 = 32;

/// One instruction of a warp.
#[derive(Debug)]
pub struct Instruction {
    /// Its name, then its modifiers.
    parts: Vec<String>,
    /// The instruction that it branches to.
    target: Option<usize>,
    /// Whether a predicate decides that it has an effect.
    predicated: bool,
    /// Whether the predicate is one that never holds.
    never: bool,
    /// Whether its first factor is in registers, of a product by four warps.
    of_registers: bool,
}

impl Instruction {
    fn of(text: &str, labels: &HashMap<&str, usize>) -> Option<Self> {
        let mut words = text.split_whitespace();
        let first = words.next()?;
        let predicate = first.strip_prefix('@');
        let name = if predicate.is_some() { words.next()? } else { first };
        let operands: Vec<&str> = words.collect();
        let target = (name.split('.').next() == Some("BRA"))
            .then(|| operands.iter().find_map(|word| labels.get(label_in(word)?).copied()));
        Some(Self {
            parts: name.split('.').map(str::to_owned).collect(),
            target: target.flatten(),
            predicated: predicate.is_some(),
            never: predicate == Some("!PT"),
            of_registers: operands.get(1).is_some_and(|factor| factor.starts_with('R')),
        })
    }

    fn name(&self) -> &str {
        &self.parts[0]
    }

    fn has(&self, modifier: &str) -> bool {
        self.parts.iter().skip(1).any(|part| part == modifier)
    }

    /// What executes it.
    pub fn kind(&self) -> Kind {
        match self.name() {
            "HMMA" | "HGMMA" => Kind::Tensor,
            "FADD" | "FMUL" | "FFMA" | "FFMA32I" | "FMUL32I" | "FADD32I" => Kind::Float,
            "MUFU" => Kind::Special,
            "IADD3" | "LOP3" | "SHF" | "LEA" | "ISETP" | "FSETP" | "FSEL" | "SEL" | "FMNMX"
            | "IMNMX" | "VIADD" | "VIADDMNMX" | "VIMNMX" | "PRMT" | "PLOP3" | "FCHK" | "F2FP"
            | "IABS" | "POPC" | "FLO" => Kind::Integer,
            "LDS" | "STS" | "LDSM" | "ATOMS" => Kind::Shared,
            "LDG" | "STG" | "LDGSTS" => Kind::Global,
            _ => Kind::Other,
        }
    }

    /// Products of two numbers that tensor cores make of it in 16 bits, or could in the time that wider ones take.
    pub fn products(&self) -> u64 {
        if let Some(extents) = self.of_group() {
            return extents.iter().product::<u64>() / 4;
        }
        let shape = self.parts.get(1).map_or("", String::as_str);
        let product = match (self.name(), shape) {
            ("HMMA", "16816") => 16 * 8 * 16,
            ("HMMA", "1688") => 16 * 8 * 8,
            ("HMMA", "1684") => 16 * 8 * 4,
            _ => 0,
        };
        if self.has("TF32") { 2 * product } else { product }
    }

    /// Bytes that a warp reads or writes in global memory.
    pub fn global_bytes(&self) -> u64 {
        if self.kind() == Kind::Global { WARP * self.bytes_of_lane() } else { 0 }
    }

    /// Extents of the product that four warps make together: rows, columns and summed indices.
    fn of_group(&self) -> Option<[u64; 3]> {
        let shape = self.parts.get(1).filter(|_| self.name() == "HGMMA")?;
        let extents: Vec<u64> = shape.split('x').filter_map(|n| n.parse().ok()).collect();
        extents.try_into().ok()
    }

    /// Bytes that a warp reads or writes in shared memory, copies from global memory among them.
    pub fn shared_bytes(&self) -> u64 {
        if let Some([rows, columns, summed]) = self.of_group() {
            // Both factors lie there, or the second alone, in 16 bits.
            let read = if self.of_registers { columns } else { rows + columns };
            return read * summed * 2 / 4;
        }
        match self.name() {
            _ if self.never => 0,
            // Matrices of eight rows of 16 bytes.
            "LDSM" => {
                128 * if self.has("4") {
                    4
                } else if self.has("2") {
                    2
                } else {
                    1
                }
            }
            "LDS" | "STS" | "LDGSTS" | "ATOMS" => WARP * self.bytes_of_lane(),
            _ => 0,
        }
    }

    fn bytes_of_lane(&self) -> u64 {
        let sizes = [("128", 16), ("64", 8), ("U16", 2), ("S16", 2), ("U8", 1), ("S8", 1)];
        sizes.into_iter().find(|(modifier, _)| self.has(modifier)).map_or(4, |(_, bytes)| bytes)
    }
}

/// The label that a word of a branch names.
fn label_in(word: &str) -> Option<&str> {
    let from = word.find(".L_")?;
    let label = &word[from..];
    let end = label.find(|c: char| !(c.is_ascii_alphanumeric() || "._".contains(c)));
    Some(&label[..end.unwrap_or(label.len())])
}

/// The instructions of one kernel.
pub struct Listing(Vec<Instruction>);

impl Listing {
    /// Reads what `nvdisasm -c` prints of code with one kernel.
    pub fn of(text: &str) -> Self {
        let mut labels = HashMap::new();
        let mut texts = vec![];
        for line in text.lines() {
            let line = line.trim();
            if let Some(label) = line.strip_suffix(':') {
                labels.insert(label, texts.len());
            } else if let Some((_, text)) = line.strip_prefix("/*").and_then(|l| l.split_once("*/"))
                && let Some((text, _)) = text.split_once(';')
            {
                texts.push(text.trim_matches(['{', '}', ' ', '\t']));
            }
        }
        Self(texts.iter().filter_map(|text| Instruction::of(text, &labels)).collect())
    }

    /// Loops: from the instruction that a branch goes back to, to the last that goes back there.
    fn loops(&self) -> Vec<RangeInclusive<usize>> {
        let mut last_of: HashMap<usize, usize> = HashMap::new();
        for (from, instruction) in self.0.iter().enumerate() {
            match instruction.target {
                // A branch to itself is what follows the kernel's end.
                Some(to) if to < from => _ = last_of.insert(to, from),
                _ => {}
            }
        }
        let mut loops: Vec<_> = last_of.into_iter().map(|(first, last)| first..=last).collect();
        loops.sort_by_key(|range| (*range.start(), *range.end()));
        loops
    }

    /// What an iteration of a loop, or the whole kernel, issues on the way through it that has the most tensor products, then the most bytes of global memory, then
    /// the fewest instructions. Of loops within it, one iteration counts.
    fn way(&self, range: &RangeInclusive<usize>) -> Vec<&Instruction> {
        self.best_way(range, |products, bytes, count| (products, bytes, -count))
    }

    /// The same with the most tensor products, then the most instructions.
    fn long_way(&self, range: &RangeInclusive<usize>) -> Vec<&Instruction> {
        self.best_way(range, |products, _, count| (products, 0, count))
    }

    /// The way that is worth most, by its tensor products, its bytes of global memory and the number of its instructions.
    fn best_way(
        &self,
        range: &RangeInclusive<usize>,
        worth: impl Fn(u64, u64, i64) -> (u64, u64, i64),
    ) -> Vec<&Instruction> {
        type Worth = (u64, u64, i64);
        let (first, last) = (*range.start(), *range.end());
        // What was issued up to an instruction, it among it, and which comes before it.
        type Sums = (u64, u64, i64);
        let mut best: HashMap<usize, (Worth, Sums, Option<usize>)> = HashMap::new();
        let mut end: Option<(Worth, usize)> = None;
        let mut incoming: HashMap<usize, Vec<usize>> = HashMap::new();
        for at in first..=last {
            let instruction = &self.0[at];
            let before = incoming.get(&at).into_iter().flatten();
            let reached = before.filter_map(|from| {
                let (worth, sums, _) = best.get(from)?;
                Some((*worth, *sums, Some(*from)))
            });
            let start = (at == first).then_some((worth(0, 0, 0), (0, 0, 0), None));
            let Some((_, (products, bytes, count), from)) = start.or(reached.max()) else {
                continue;
            };
            let sums =
                (products + instruction.products(), bytes + instruction.global_bytes(), count + 1);
            let worth = worth(sums.0, sums.1, sums.2);
            best.insert(at, (worth, sums, from));
            match instruction.target {
                Some(to) if to == first => end = end.max(Some((worth, at))),
                // Only on the way through the whole kernel, since no branch goes back from here.
                None if instruction.name() == "EXIT" && last + 1 == self.0.len() => {
                    end = end.max(Some((worth, at)));
                }
                Some(to) if to > at && to <= last => incoming.entry(to).or_default().push(at),
                _ => {}
            }
            let leaves = ["BRA", "EXIT", "RET"].contains(&instruction.name());
            if !leaves || instruction.predicated {
                incoming.entry(at + 1).or_default().push(at);
            }
        }
        let mut way = vec![];
        let mut next = end.map(|(_, at)| at);
        while let Some(at) = next {
            way.push(&self.0[at]);
            next = best[&at].2;
        }
        way.reverse();
        way
    }

    /// An iteration of the loop where a kernel spends its time, or all of a kernel that works in none: of loops that no other such loop lies in, that with the most tensor products,
    /// then the most bytes of global memory, then the fewest instructions.
    pub fn iteration(&self) -> Vec<&Instruction> {
        let loops = self.loops();
        match self.hot(&loops) {
            Some(index) => self.way(&loops[index]),
            None if self.0.is_empty() => vec![],
            None => self.way(&(0..=self.0.len() - 1)),
        }
    }

    /// The longest ways through the loop around that one, and through that one, of which it has a single iteration; none where there is no
    /// loop around it.
    pub fn around(&self) -> Option<[Vec<&Instruction>; 2]> {
        let loops = self.loops();
        let hot = &loops[self.hot(&loops)?];
        let holds = |other: &&RangeInclusive<usize>| {
            *other != hot && other.start() <= hot.start() && hot.end() <= other.end()
        };
        let around = loops.iter().filter(holds).min_by_key(|range| range.end() - range.start())?;
        Some([around, hot].map(|range| self.long_way(range)))
    }

    /// Which of these loops it is.
    fn hot(&self, loops: &[RangeInclusive<usize>]) -> Option<usize> {
        let worth = |way: &[&Instruction]| {
            let sum = |of: fn(&Instruction) -> u64| way.iter().map(|one| of(one)).sum::<u64>();
            (sum(Instruction::products), sum(Instruction::global_bytes))
        };
        let ways: Vec<_> = loops.iter().map(|range| self.way(range)).collect();
        let most = ways.iter().map(|way| worth(way)).max().unwrap_or_default();
        let works = |way: &[&Instruction]| match most {
            (0, _) => worth(way).1 > 0,
            _ => worth(way).0 > 0,
        };
        let inner = |index: usize| {
            let within = |other: &RangeInclusive<usize>| {
                *other != loops[index]
                    && loops[index].start() <= other.start()
                    && other.end() <= loops[index].end()
            };
            !loops.iter().zip(&ways).any(|(other, way)| within(other) && works(way))
        };
        (0..loops.len())
            .filter(|&index| works(&ways[index]) && inner(index))
            .max_by_key(|&index| (worth(&ways[index]), Reverse(ways[index].len())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A kernel with a spinning loop, a loop of copies and one of products, which skips a mask.
    const LISTING: &str = "
        .section .text.tr_entry_0
tr_entry_0:
.text.tr_entry_0:
        /*0000*/                   LDC R1, c[0x0][0x28] ;
.L_x_0:
        /*0010*/                   LDGSTS.E.BYPASS.LTC128B.128 [R4], desc[UR4][R2.64], P0 ;
        /*0020*/               @P1 BRA `(.L_x_0) ;
.L_x_1:
        /*0030*/                   LDSM.16.M88.4 R4, [R3] ;
        /*0040*/              @!PT LDS RZ, [RZ] ;
        /*0050*/              @!P0 BRA `(.L_x_2) ;
        /*0060*/                   FSEL R5, R5, R6, P2 ;
        /*0070*/                   FSEL R6, R5, R6, P2 ;
.L_x_2:
        /*0080*/                   HMMA.16816.F32.BF16 R8, R4, R6, R8 ;
        /*0090*/                   MUFU.EX2 R9, R9 ;
        /*00a0*/                   FFMA R9, R9, R9, R9 ;
        /*00b0*/               @P1 BRA `(.L_x_1) ;
        /*00c0*/                   STG.E.64 desc[UR4][R2.64], R8 ;
        /*00d0*/                   EXIT ;
.L_x_3:
        /*00e0*/                   BRA `(.L_x_3);
.L_x_4:
";

    fn names(way: &[&Instruction]) -> Vec<String> {
        way.iter().map(|instruction| instruction.name().to_owned()).collect()
    }

    #[test]
    fn loops_are_found_by_the_branches_that_go_back() {
        assert_eq!(Listing::of(LISTING).loops(), [1..=2, 3..=11]);
    }

    #[test]
    fn an_iteration_takes_the_shortest_way_past_what_it_may_skip() {
        let listing = Listing::of(LISTING);
        let way = listing.iteration();
        assert_eq!(names(&way), ["LDSM", "LDS", "BRA", "HMMA", "MUFU", "FFMA", "BRA"]);
        assert_eq!(way.iter().map(|one| one.products()).sum::<u64>(), 16 * 8 * 16);
    }

    #[test]
    fn an_iteration_takes_the_way_that_copies() {
        let text = LISTING.replace("FSEL R5, R5, R6, P2", "LDG.E.U16 R5, desc[UR4][R2.64]");
        let listing = Listing::of(&text);
        assert_eq!(listing.iteration().len(), 9);
    }

    #[test]
    fn a_kernel_without_products_is_its_loop_of_most_bytes() {
        let text = LISTING.replace("HMMA.16816.F32.BF16", "IMAD");
        let listing = Listing::of(&text);
        assert_eq!(names(&listing.iteration()), ["LDGSTS", "BRA"]);
    }

    #[test]
    fn a_kernel_that_works_in_no_loop_counts_as_a_whole() {
        let text = LISTING.replace("HMMA.16816.F32.BF16", "IMAD").replace("LDGSTS.E", "MOV");
        let listing = Listing::of(&text);
        let way = listing.iteration();
        assert_eq!(way.len(), 12, "{:?}", names(&way));
        assert_eq!(names(&way).last().map(String::as_str), Some("EXIT"));
    }

    #[test]
    fn the_inner_of_two_loops_counts() {
        let text = LISTING
            .replace("@P1 BRA `(.L_x_1) ;", "@P1 BRA `(.L_x_2) ;")
            .replace("STG.E.64 desc[UR4][R2.64], R8", "@P0 BRA `(.L_x_1)");
        let listing = Listing::of(&text);
        assert_eq!(listing.loops(), [1..=2, 3..=12, 8..=11]);
        assert_eq!(names(&listing.iteration()), ["HMMA", "MUFU", "FFMA", "BRA"]);
        // What loads before it, the mask that it may skip, and the branch behind it.
        assert_eq!(listing.around().map(|ways| ways.map(|way| way.len())), Some([10, 4]));
    }

    #[test]
    fn instructions_are_counted_by_what_they_move_and_multiply() {
        let of = |text| Instruction::of(text, &HashMap::new()).expect("an instruction");
        assert_eq!(of("LDSM.16.MT88.4 R4, [R3]").shared_bytes(), 512);
        assert_eq!(of("@!PT LDS RZ, [RZ]").shared_bytes(), 0);
        assert_eq!(of("LDGSTS.E.BYPASS.LTC128B.128 [R4], [R2.64]").shared_bytes(), 512);
        assert_eq!(of("LDG.E.64 R4, [R2.64]").global_bytes(), 256);
        assert_eq!(of("STG.E.U16 [R2.64], R4").global_bytes(), 64);
        let of_group = of("HGMMA.64x256x16.F32.BF16 R24, gdesc[UR8], R24");
        assert_eq!(of_group.products(), 65_536);
        assert_eq!(of_group.shared_bytes(), (64 * 16 + 256 * 16) / 2);
        let of_registers = of("HGMMA.64x128x16.F32.BF16 R88, R180, gdesc[UR8].tnspB, R88, gsb0");
        assert_eq!(of_registers.products(), 32_768);
        assert_eq!(of_registers.shared_bytes(), 128 * 16 / 2);
        assert_eq!(of("HMMA.1688.F32.TF32 R4, R4, R6, R8").products(), 2 * 16 * 8 * 8);
        assert_eq!(of("@P0 F2FP.BF16.F32.PACK_AB R4, R4, R5").kind(), Kind::Integer);
        assert_eq!(of("UIADD3 UR4, UR4, 0x1, URZ").kind(), Kind::Other);
    }
}
