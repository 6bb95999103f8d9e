//! What was timed, kept on disk: a run that goes on makes its matmuls as it did before, with the same bits.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use super::Winner;
use crate::library::Algorithm;

/// Seconds of the ways to make something.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Timed {
    /// The engine's kernels.
    pub own: f64,
    /// The fastest other way, the library's or of other kernels, where there is any.
    pub library: Option<(Winner, f64)>,
}

/// Who makes what was timed of a kind, and how much of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tally {
    /// The kind.
    pub what: &'static str,
    /// Who makes it where nothing else is faster, and how many of those that were timed.
    pub usual: (&'static str, usize),
    /// The other way, in the same words.
    pub other: (&'static str, usize),
}

/// The kinds, with the beginning of their keys, and who makes them. What else was timed is a matmul.
const ATTENTION: [(&str, &str); 2] =
    [("attention_wgmma.", "attention"), ("attention_wgmma_grad.", "attention's gradient")];
const ATTENTION_BY: [&str; 2] = ["warpgroups", "warps"];
const MATMULS_BY: [&str; 2] = ["the project's kernels", "cuBLASLt"];

/// All that was timed on one device with one version of the library, by problem and kernels.
#[derive(Debug, Default)]
pub struct Choices {
    /// None where nothing is kept.
    file: Option<PathBuf>,
    timed: BTreeMap<String, Timed>,
}

impl Choices {
    /// What a file holds; nothing where there's none or what it holds was measured in another way, and of its lines those
    /// that can be read.
    pub fn open(file: PathBuf) -> Self {
        let text = fs::read_to_string(&file).unwrap_or_default();
        let lines = text.strip_prefix(MEASURED).unwrap_or_default().lines();
        Self { file: Some(file), timed: lines.filter_map(read).collect() }
    }

    /// What was timed for a problem.
    pub fn find(&self, key: &str) -> Option<Timed> {
        self.timed.get(key).copied()
    }

    /// Who makes what was timed, of each kind of which anything was.
    pub fn tallies(&self) -> Vec<Tally> {
        let mut tallies: Vec<Tally> = vec![];
        for (key, Timed { own, library }) in &self.timed {
            let attention = ATTENTION.iter().find(|(begins, _)| key.starts_with(begins));
            let (what, [usual, other]) =
                attention.map_or(("matmuls", MATMULS_BY), |(_, what)| (*what, ATTENTION_BY));
            let known = tallies.iter().position(|tally| tally.what == what);
            let at = known.unwrap_or_else(|| {
                tallies.push(Tally { what, usual: (usual, 0), other: (other, 0) });
                tallies.len() - 1
            });
            let faster = library.is_some_and(|(_, seconds)| seconds < *own);
            let tally = &mut tallies[at];
            let taken = if faster { &mut tally.other } else { &mut tally.usual };
            taken.1 += 1;
        }
        tallies
    }

    /// Adds what was timed to the file. One that can't be written costs the time to measure again and nothing else.
    pub fn add(&mut self, timed: impl IntoIterator<Item = (String, Timed)>) {
        self.timed.extend(timed);
        let Some(file) = &self.file else { return };
        let text = self.timed.iter().map(write).fold(MEASURED.to_owned(), |all, line| all + &line);
        // Renamed, so that nobody reads half a file.
        let own = file.with_extension(format!("{}", std::process::id()));
        let folder = file.parent().map_or(Ok(()), fs::create_dir_all);
        let kept =
            folder.and_then(|()| fs::write(&own, text)).and_then(|()| fs::rename(&own, file));
        if kept.is_err() {
            let _ = fs::remove_file(&own);
        }
    }
}

/// The first line of a file: what its seconds are of.
const MEASURED: &str = "# seconds of one run: the median of 5 replays of a CUDA graph of up to 50 runs, replayed in \
    turns with the graphs that it is compared to; the kernels, then the library's fastest algorithm\n";

/// What stands for a way where the library has none.
const NONE: &str = "none";

fn write((key, timed): (&String, &Timed)) -> String {
    let library = timed.library.map_or(NONE.into(), |(Winner { way, algorithm }, seconds)| {
        let Algorithm { words, workspace } = algorithm;
        let words = words.map(|word| format!("{word:x}")).join(",");
        format!("{words}\t{workspace}\t{way}\t{seconds:e}")
    });
    format!("{key}\t{:e}\t{library}\n", timed.own)
}

fn read(line: &str) -> Option<(String, Timed)> {
    let mut fields = line.split('\t');
    let key = fields.next()?.to_owned();
    let own = fields.next()?.parse().ok()?;
    let library = match fields.next()? {
        NONE => None,
        list => {
            let words = list.split(',').map(|word| u64::from_str_radix(word, 16).ok());
            let words: Vec<u64> = words.collect::<Option<_>>()?;
            let words = words.try_into().ok()?;
            let workspace = fields.next()?.parse().ok()?;
            let way = fields.next()?.parse().ok()?;
            let algorithm = Algorithm { words, workspace };
            Some((Winner { way, algorithm }, fields.next()?.parse().ok()?))
        }
    };
    Some((key, Timed { own, library }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_are_read_as_they_were_written() {
        let folder = std::env::temp_dir().join(format!("tightrope-choices-{}", std::process::id()));
        let file = folder.join("matmuls.tsv");
        let algorithm = Algorithm { words: [1, u64::MAX, 0, 7, 8, 9, 10, 11], workspace: 4096 };
        let both = Timed { own: 1.25e-3, library: Some((Winner { way: 1, algorithm }, 1.0e-3)) };
        let one = Timed { own: 3.0e-5, library: None };
        let mut choices = Choices::open(file.clone());
        assert_eq!(choices.find("a"), None);
        choices.add([("a".to_owned(), both)]);
        choices.add([("b c".to_owned(), one)]);
        let by_warps = Timed { own: 2.0e-3, ..both };
        let key = "attention_wgmma.forward_wgmma or attention_mma.forward_mma kernels 0";
        choices.add([(key.to_owned(), by_warps)]);
        // A line that was cut short is left out, and the others are kept.
        let text = fs::read_to_string(&file).unwrap();
        fs::write(&file, format!("{text}d\t1e-3\t1,2\n")).unwrap();
        let again = Choices::open(file);
        assert_eq!(again.find("a"), Some(both));
        assert_eq!(again.find("b c"), Some(one));
        assert_eq!(again.find("d"), None);
        assert!(text.starts_with("# seconds of one run: the median"));
        // The library is faster at one of two matmuls.
        let tally = |what, [usual, other]: [&'static str; 2], counts: [usize; 2]| Tally {
            what,
            usual: (usual, counts[0]),
            other: (other, counts[1]),
        };
        let matmuls = tally("matmuls", MATMULS_BY, [1, 1]);
        let mut tallies = again.tallies();
        tallies.sort_by_key(|tally| tally.what);
        assert_eq!(tallies, [tally("attention", ATTENTION_BY, [0, 1]), matmuls]);
        // What was measured in another way is measured again.
        let file = folder.join("matmuls.tsv");
        fs::write(&file, text.replacen("median", "least", 1)).unwrap();
        assert_eq!(Choices::open(file).find("a"), None);
        fs::remove_dir_all(folder).unwrap();
    }
}
