//! The kernels of ops, to check them, and those that others stand in for.

use std::hash::{DefaultHasher, Hash, Hasher};

use tightrope_core::launch::{Launch, Operand, Place, Tile};
use tightrope_core::{KernelUse, Op, Rule as _, Type, Variants};

use crate::{Description, Wgpu, source, tiles};

/// Matmuls by matrices that a subgroup holds together.
const COOPERATIVE: &str = "cooperative matrices";
/// Sums, and rows of matmuls, through a subgroup's registers.
const SUBGROUPS: &str = "subgroups";
/// f16 that the device loads and stores itself.
const NATIVE_F16: &str = "native f16";
/// Four elements in words of 64 bits.
const WIDE_WORDS: &str = "words of 64 bits";
/// Matmuls whose threads share what they load.
const TILES: &str = "shared tiles";

/// In the order in which they're left out: each is replaced by plainer kernels.
const ALL: [&str; 5] = [COOPERATIVE, SUBGROUPS, NATIVE_F16, WIDE_WORDS, TILES];

/// The tile that stands in for shared ones.
const PLAIN: Tile = tiles::CANDIDATES[3];

/// The numbers of bindings, where operands that are the same range share one.
fn bindings(launch: &Launch) -> Vec<usize> {
    let mut places: Vec<Place> = vec![];
    let number = |operand: &Operand| {
        let known = places.iter().position(|place| *place == operand.place);
        known.unwrap_or_else(|| {
            places.push(operand.place);
            places.len() - 1
        })
    };
    launch.operands.iter().map(number).collect()
}

impl Variants for Wgpu {
    fn identity(&self) -> String {
        let Description { name, backend, driver, .. } = &self.device.description;
        format!("{name} by {backend}, {driver}")
    }

    fn kernels(
        &self,
        _of_few: bool,
        op: &Op,
        inputs: &[&Type],
        outputs: &[&Type],
    ) -> Result<Vec<KernelUse>, String> {
        let own = self.device.limits.webgpu();
        let mut uses: Vec<KernelUse> = vec![];
        for launch in op.launch(&self.device.limits, inputs, outputs)?.list {
            let assembled = source::assemble(&launch, &bindings(&launch), own)?;
            let mut hasher = DefaultHasher::new();
            (&assembled, launch.entry).hash(&mut hasher);
            let text = hasher.finish();
            if uses.iter().any(|known| known.text == text) {
                continue;
            }
            let used = [
                launch.entry == "cooperative",
                own.subgroup.is_some() && source::subgroup(&launch) > 1,
                assembled.contains("enable f16"),
                assembled.contains("u64"),
                launch.entry == "tiled",
            ];
            let variants = ALL.into_iter().zip(used).filter(|(_, used)| *used);
            let variants = variants.map(|(name, _)| name).collect();
            let label = format!("{}.{}", launch.kernel, launch.entry);
            uses.push(KernelUse { label, text, variants, of_library: false });
        }
        Ok(uses)
    }

    fn compile(&mut self, _uses: &[(&Op, Vec<&Type>, Vec<&Type>)]) {
        // One after the other, but none while it's waited for.
        self.compiles_early = true;
    }

    fn leave_out(&mut self, variant: &str) {
        match variant {
            COOPERATIVE => self.device.offer(|own| own.cooperative = None),
            SUBGROUPS => {
                self.device.offer(|own| own.subgroup = None);
                if !self.device.limits.tile.suits(&self.device.limits) {
                    self.device.limits.tile = PLAIN;
                }
            }
            NATIVE_F16 => self.device.offer(|own| own.native_f16 = false),
            WIDE_WORDS => self.device.offer(|own| own.wide_words = false),
            TILES => self.device.limits.tile = PLAIN,
            _ => {}
        }
    }

    fn known(&self) -> &'static [&'static str] {
        &ALL
    }

    fn measured(&self) -> String {
        let limits = &self.device.limits;
        let tile = tiles::CANDIDATES.iter().position(|tile| *tile == limits.tile).unwrap_or(0);
        let cooperative = limits.webgpu().cooperative.is_some();
        format!("{tile} {} {cooperative} {:e}", limits.work, self.pace.rate())
    }

    fn measured_elsewhere(&mut self, line: &str) {
        let words: Vec<&str> = line.split(' ').collect();
        let [tile, work, cooperative, rate] = words[..] else { return };
        let tile = tile.parse().ok().and_then(|index: usize| tiles::CANDIDATES.get(index));
        let limits = &mut self.device.limits;
        limits.tile = tile.copied().unwrap_or(limits.tile);
        limits.work = work.parse().unwrap_or(limits.work);
        if let Ok(rate) = rate.parse() {
            self.pace.set_rate(rate);
        }
        let edge = self.device.description.cooperative.filter(|_| cooperative == "true");
        self.device.offer(|own| own.cooperative = edge.map(tiles::cooperative));
    }
}
