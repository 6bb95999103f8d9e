//! `Variants`: the kernels of a device, to check them and to leave out those that are wrong there.

use crate::ops::Op;
use crate::types::Type;

/// A kernel that an op runs on a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelUse {
    /// Its file and entry, for people.
    pub label: String,
    /// A hash of all that its compiler reads.
    pub text: u64,
    /// The variants that it is of, which others can stand in for; the one to leave out first comes first.
    pub variants: Vec<&'static str>,
    /// Whether it's none of the engine's, but the device's own library.
    pub of_library: bool,
}

/// A device whose kernels are compiled for it. Some are variants, for which others stand in where they're left out.
pub trait Variants {
    /// The device, its driver, its compiler and the kernels' files: what was seen to be right of one says nothing of another.
    fn identity(&self) -> String;

    /// The kernels that run for an op; as they do after [`Variants::take_few`], where `of_few`.
    ///
    /// # Errors
    /// In words, where there's none.
    fn kernels(
        &self,
        of_few: bool,
        op: &Op,
        inputs: &[&Type],
        outputs: &[&Type],
    ) -> Result<Vec<KernelUse>, String>;

    /// Takes few of the device's multiprocessors from now on, where kernels say how many run: small ops have the kernels of large
    /// ones then, and each multiprocessor goes from tile to tile as in those.
    fn take_few(&mut self) {}

    /// Compiles the kernels of ops together, which takes less time than one after the other. What doesn't compile is found
    /// where it's used.
    fn compile(&mut self, uses: &[(&Op, Vec<&Type>, Vec<&Type>)]) {
        let _ = uses;
    }

    /// Leaves a variant out from now on: plans that were made before are void.
    fn leave_out(&mut self, variant: &str);

    /// All variants, in the order in which they stand in for each other.
    fn known(&self) -> &'static [&'static str];

    /// What was chosen by measuring when the device was opened, as a line of text.
    fn measured(&self) -> String {
        String::new()
    }

    /// Takes over what was chosen for the same device opened elsewhere.
    fn measured_elsewhere(&mut self, line: &str) {
        let _ = line;
    }
}
