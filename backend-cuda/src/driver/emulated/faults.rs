//! An emulated device on which named kernels go wrong, as they may on a GPU that nobody tried.

use std::time::Duration;

/// How a kernel goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It computes something else.
    Wrong,
    /// It ends with an error, and so does everything after it.
    Fault,
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
}

impl Faults {
    /// What `words` list, with commas: `matmul_mma=wrong`, `attention.forward=hang`, `norm=fault`, and `multiprocessors=4` of a
    /// device like Hopper.
    ///
    /// # Errors
    /// Words that say something else.
    pub fn read(words: &str) -> Result<Self, String> {
        let mut faults = Self::default();
        for entry in words.split(',').filter(|entry| !entry.is_empty()) {
            let unknown = || format!("an emulated device has no `{entry}`");
            let (name, what) = entry.split_once('=').ok_or_else(unknown)?;
            if name == "multiprocessors" {
                faults.wgmma = Some(what.parse().map_err(|_| unknown())?);
                continue;
            }
            let fault = match what {
                "wrong" => Fault::Wrong,
                "fault" => Fault::Fault,
                "hang" => Fault::Hang,
                _ => return Err(unknown()),
            };
            faults.kernels.push((name.to_owned(), fault));
        }
        Ok(faults)
    }

    /// What goes wrong with a kernel; one that hangs doesn't come back.
    pub fn of(&self, label: &str) -> Option<Fault> {
        let found = self.kernels.iter().find(|(name, _)| label.starts_with(name))?.1;
        while found == Fault::Hang {
            std::thread::sleep(Duration::from_secs(1));
        }
        Some(found)
    }
}
