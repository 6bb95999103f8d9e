//! An emulated device on which named kernels go wrong, as they may on a GPU that nobody tried.

use std::fs::File;
use std::path::PathBuf;
use std::time::Duration;

/// How a kernel goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It doesn't compile.
    Refused,
    /// It writes a wrong number.
    Wrong,
    /// It ends with an error, and so does everything after it.
    Error,
    /// It never ends.
    Hang,
}

/// What goes wrong, and what the device has that others don't.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// By the beginning of a kernel's label.
    kernels: Vec<(String, Fault)>,
    /// Multiprocessors with warpgroups' matmuls.
    pub wgmma: Option<u32>,
    /// A folder that remembers what ended with an error or never: that happens once, whichever process is the first.
    once: Option<PathBuf>,
}

impl Faults {
    /// What `words` list, with commas: `matmul_mma=wrong`, `attention.forward=hang`, `norm=fault`, `reduce=refused`, and
    /// `multiprocessors=4` of a device like Hopper. With `once=FOLDER`, hangs and errors happen once; with `driver=none`, there's no
    /// device.
    ///
    /// # Errors
    /// Words that say something else, and the missing driver.
    pub fn read(words: &str) -> Result<Self, String> {
        let mut faults = Self::default();
        for entry in words.split(',').filter(|entry| !entry.is_empty()) {
            let unknown = || format!("an emulated device has no `{entry}`");
            let (name, what) = entry.split_once('=').ok_or_else(unknown)?;
            let fault = match (name, what) {
                ("multiprocessors", _) => {
                    faults.wgmma = Some(what.parse().map_err(|_| unknown())?);
                    continue;
                }
                ("once", _) => {
                    faults.once = Some(what.into());
                    continue;
                }
                ("driver", "none") => return Err("no NVIDIA driver is installed".into()),
                (_, "refused") => Fault::Refused,
                (_, "wrong") => Fault::Wrong,
                (_, "fault") => Fault::Error,
                (_, "hang") => Fault::Hang,
                _ => return Err(unknown()),
            };
            faults.kernels.push((name.to_owned(), fault));
        }
        Ok(faults)
    }

    /// Whether a kernel doesn't compile.
    pub fn refuse(&self, label: &str) -> bool {
        self.listed(label) == Some(Fault::Refused)
    }

    /// What goes wrong with a kernel that runs; one that hangs doesn't come back.
    pub fn of(&self, label: &str) -> Option<Fault> {
        let found = self.listed(label).filter(|&fault| self.happens(label, fault))?;
        match found {
            Fault::Hang => loop {
                std::thread::sleep(Duration::from_secs(1));
            },
            other => Some(other),
        }
    }

    fn listed(&self, label: &str) -> Option<Fault> {
        let named = |(name, _): &&(String, Fault)| label.starts_with(name);
        self.kernels.iter().find(named).map(|&(_, fault)| fault)
    }

    /// Whether a fault happens now: the first time, where it happens once.
    fn happens(&self, label: &str, fault: Fault) -> bool {
        match (&self.once, fault) {
            (Some(folder), Fault::Error | Fault::Hang) => {
                // Who makes the file is the first.
                File::create_new(folder.join(format!("{label}-{fault:?}"))).is_ok()
            }
            _ => true,
        }
    }
}

/// Gives the last word of 32 bits that differs another sign and exponent, or two numbers of 16 bits theirs.
pub fn spoil(before: &[u8], after: &mut [u8]) {
    const WORD: usize = size_of::<u32>();
    const BITS: u32 = 0xC000_C000;
    let words = before.chunks_exact(WORD).zip(after.chunks_exact_mut(WORD));
    if let Some((_, word)) = words.filter(|(before, after)| before != after).last() {
        let read = [word[0], word[1], word[2], word[3]];
        word.copy_from_slice(&(u32::from_le_bytes(read) ^ BITS).to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_those_of_the_kernels_that_are_named() {
        let faults = Faults::read("reduce.sum_rows=wrong,map=fault,norm=refused,multiprocessors=4");
        let faults = faults.unwrap();
        assert_eq!(faults.of("reduce.sum_rows"), Some(Fault::Wrong));
        assert_eq!(faults.of("reduce.sum_columns"), None);
        assert_eq!(faults.of("map.elements"), Some(Fault::Error));
        assert!(faults.refuse("norm.layer_forward") && !faults.refuse("map.elements"));
        assert_eq!(faults.wgmma, Some(4));
        assert_eq!(Faults::read(""), Ok(Faults::default()));
        assert!(Faults::read("map").unwrap_err().contains("no `map`"));
        assert!(Faults::read("map=slow").unwrap_err().contains("no `map=slow`"));
        assert!(Faults::read("driver=none").unwrap_err().contains("no NVIDIA driver"));
    }

    #[test]
    fn what_happens_once_does_so_in_the_first_process_alone() {
        let folder = tempfile::tempdir().unwrap();
        let words = format!("map=fault,reduce=wrong,once={}", folder.path().display());
        let faults = || Faults::read(&words).unwrap();
        assert_eq!(faults().of("map.elements"), Some(Fault::Error));
        assert_eq!(faults().of("map.elements"), None);
        for _ in 0..2 {
            assert_eq!(faults().of("reduce.sum_rows"), Some(Fault::Wrong));
        }
    }

    #[test]
    fn a_wrong_number_is_the_last_that_was_written() {
        let before = [0_u8; 16];
        let mut after = before;
        after[4..8].copy_from_slice(&1.0_f32.to_le_bytes());
        let written = after;
        spoil(&before, &mut after);
        assert_eq!(after[..4], written[..4]);
        assert_ne!(after[4..8], written[4..8]);
        assert_eq!(after[8..], written[8..]);
        let mut same = before;
        spoil(&before, &mut same);
        assert_eq!(same, before);
    }
}
