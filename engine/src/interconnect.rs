//! What connects the GPUs of a run, by the published rates of links.
//!
//! ```
//! use tightrope::cards::Card;
//! use tightrope::interconnect::Links;
//!
//! let links: Links = "8xnvlink4+400gbe".parse()?;
//! let connected = links.of(Card::named("h100").ok().map(Card::links));
//! assert_eq!(connected.to_string(), "8xnvlink4+400gbe");
//! // Of 450 and of 50 GB/s, four fifths.
//! assert_eq!(connected.rates().within.bytes, 360e9);
//! assert_eq!(connected.rates().between.bytes, 40e9);
//! # Ok::<(), String>(())
//! ```

use std::fmt;
use std::str::FromStr;

use tightrope_nn::{Interconnect, Link};

/// What a link is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Medium {
    NvLink,
    Pci,
    Network,
}

/// A kind of link by its published rate.
#[derive(Debug, PartialEq)]
struct Kind {
    name: &'static str,
    medium: Medium,
    /// GB/s of one GPU in one direction.
    rate: f64,
}

const fn kind(name: &'static str, medium: Medium, rate: f64) -> Kind {
    Kind { name, medium, rate }
}

/// The links, the slower first of each medium.
///
/// NVLink by NVIDIA's data sheets of A100 (600 GB/s of both directions), H100 (900) and B200 (1,800). PCI Express by its specification, of
/// 16 lanes. Ethernet by IEEE 802.3, and InfiniBand by NVIDIA's data sheets of ConnectX-6 (HDR) and ConnectX-7 (NDR): bits.
#[rustfmt::skip]
const KINDS: [Kind; 15] = [
    kind("nvlink3", Medium::NvLink,  300.0),
    kind("nvlink4", Medium::NvLink,  450.0),
    kind("nvlink5", Medium::NvLink,  900.0),
    kind("pcie3",   Medium::Pci,      15.8),
    kind("pcie4",   Medium::Pci,      31.5),
    kind("pcie5",   Medium::Pci,      63.0),
    kind("10gbe",   Medium::Network,  1.25),
    kind("25gbe",   Medium::Network, 3.125),
    kind("50gbe",   Medium::Network,  6.25),
    kind("100gbe",  Medium::Network,  12.5),
    kind("200gbe",  Medium::Network,  25.0),
    kind("400gbe",  Medium::Network,  50.0),
    kind("800gbe",  Medium::Network, 100.0),
    kind("hdr",     Medium::Network,  25.0),
    kind("ndr",     Medium::Network,  50.0),
];

/// Part of a published rate that is reached, as of a GPU's memory and of its slot.
const REACHED: f64 = 0.8;
/// GPUs of a node where nothing else is said.
const NODE: usize = 8;

impl Kind {
    fn named(name: &str) -> Option<&'static Self> {
        KINDS.iter().find(|kind| kind.name == name)
    }

    /// Latencies are NCCL's own (src/graph/tuning.cc at 01afd20): of a step of a ring with the protocol for long messages, and, for
    /// messages that follow, with the one for short ones.
    fn link(&self) -> Link {
        let [first, message] = match self.medium {
            Medium::NvLink => [3.4, 0.47],
            Medium::Pci => [5.7, 1.0],
            Medium::Network => [9.6, 2.7],
        };
        Link { bytes: REACHED * 1e9 * self.rate, first_s: 1e-6 * first, message_s: 1e-6 * message }
    }

    /// The network that NVIDIA's own servers have for each GPU: DGX A100, DGX H100 and B200, and OVX with L40S.
    fn network(&self) -> &'static Self {
        let name = match (self.medium, self.rate) {
            (Medium::NvLink, ..450.0) => "200gbe",
            (Medium::NvLink, _) => "400gbe",
            _ => "100gbe",
        };
        Self::named(name).unwrap_or(&KINDS[0])
    }
}

/// What a GPU is linked to others of its node by, and its slot, by their names; where it's known.
pub type OfGpu = Option<[&'static str; 2]>;

/// A link within a node, as it's said.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Within {
    /// NVLink of the device's generation.
    NvLink,
    /// PCI Express of its generation.
    Pci,
    This(&'static Kind),
}

impl Within {
    fn read(name: &str) -> Option<Self> {
        match name {
            "nvlink" => Some(Self::NvLink),
            "pcie" => Some(Self::Pci),
            name => {
                let kind = Kind::named(name).filter(|kind| kind.medium != Medium::Network);
                kind.map(Self::This)
            }
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::NvLink => "nvlink",
            Self::Pci => "pcie",
            Self::This(kind) => kind.name,
        }
    }

    /// The link of a GPU; of the fourth generation where it has none of the kind or isn't known.
    fn of(self, gpu: OfGpu) -> &'static Kind {
        let (medium, fourth) = match self {
            Self::This(kind) => return kind,
            Self::NvLink => (Medium::NvLink, "nvlink4"),
            Self::Pci => (Medium::Pci, "pcie4"),
        };
        let mut own = gpu.into_iter().flatten().filter_map(Kind::named);
        let own = own.find(|kind| kind.medium == medium);
        own.or_else(|| Kind::named(fourth)).unwrap_or(&KINDS[0])
    }
}

/// What is said of the links: what isn't follows from the GPU.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Links {
    node: Option<usize>,
    within: Option<Within>,
    between: Option<&'static Kind>,
}

impl Links {
    /// What is accepted, to follow "must be".
    pub const EXPECTED: &'static str = "\"auto\", or the link of a GPU within a node, the one between nodes, or both, such as \"nvlink\", \"pcie4\", \
         \"100gbe\" or \"8xnvlink4+400gbe\" with 8 GPUs a node";
    /// The same as a regular expression.
    pub const PATTERN: &'static str = "^(([1-9][0-9]*x)?(nvlink[345]?|pcie[345]?)(\\+((10|25|50|100|200|400|800)gbe|hdr|ndr))?|\
                                       (10|25|50|100|200|400|800)gbe|hdr|ndr)$";

    /// Those of a GPU alone.
    pub const OF_GPU: Self = Self { node: None, within: None, between: None };

    /// With what follows from the GPU.
    pub fn of(self, gpu: OfGpu) -> Connected {
        let own = || gpu.and_then(|[link, _]| Kind::named(link));
        let within = match self.within {
            Some(within) => within.of(gpu),
            None => own().unwrap_or_else(|| Within::Pci.of(gpu)),
        };
        // GPUs that only a network is said of have nothing else.
        let alone = self.within.is_none() && self.between.is_some();
        let node = self.node.unwrap_or(if alone { 1 } else { NODE });
        Connected { node, within, between: self.between.unwrap_or_else(|| within.network()) }
    }
}

impl FromStr for Links {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("must be {}", Self::EXPECTED);
        let network = |name: &str| {
            Kind::named(name).filter(|kind| kind.medium == Medium::Network).ok_or_else(wrong)
        };
        if let Ok(between) = network(text) {
            return Ok(Self { between: Some(between), ..Self::OF_GPU });
        }
        let (node, rest) = match text.split_once('x') {
            Some((node, rest)) => {
                let plain = node.starts_with(|first: char| matches!(first, '1'..='9'));
                let node = node.parse().ok().filter(|&node: &usize| plain && node <= 1 << 16);
                (Some(node.ok_or_else(wrong)?), rest)
            }
            None => (None, text),
        };
        let (within, between) = match rest.split_once('+') {
            Some((within, between)) => (within, Some(network(between)?)),
            None => (rest, None),
        };
        let within = Within::read(within).ok_or_else(wrong)?;
        Ok(Self { node, within: Some(within), between })
    }
}

impl fmt::Display for Links {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(node) = self.node {
            write!(f, "{node}x")?;
        }
        let within = self.within.map(Within::name);
        let names = within.into_iter().chain(self.between.map(|kind| kind.name));
        write!(f, "{}", names.collect::<Vec<_>>().join("+"))
    }
}

/// The links of a run's GPUs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Connected {
    node: usize,
    within: &'static Kind,
    between: &'static Kind,
}

impl Connected {
    /// Their rates, for estimates.
    pub fn rates(&self) -> Interconnect {
        Interconnect { node: self.node, within: self.within.link(), between: self.between.link() }
    }

    /// What connects so many ranks, for people.
    pub fn describe(&self, ranks: usize) -> String {
        let of = |kind: &Kind| format!("{} ({} GB/s each way for a GPU)", kind.name, kind.rate);
        let reached = format!("{:.0} % of it reached", 100.0 * REACHED);
        if ranks <= self.node {
            return format!("{}, {reached}", of(self.within));
        }
        if self.node == 1 {
            return format!("{}, {reached}", of(self.between));
        }
        let (within, between) = (of(self.within), of(self.between));
        format!("{} GPUs a node by {within}, nodes by {between}, {reached}", self.node)
    }
}

impl fmt::Display for Connected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}+{}", self.node, self.within.name, self.between.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cards::{CARDS, Card};

    #[test]
    fn what_is_said_is_written_back_and_what_is_not_follows_from_the_gpu() {
        for (said, card, connected) in [
            ("nvlink", "h100", "8xnvlink4+400gbe"),
            ("nvlink", "a100", "8xnvlink3+200gbe"),
            ("nvlink", "rtx-4090", "8xnvlink4+400gbe"),
            ("pcie", "h100", "8xpcie5+100gbe"),
            ("pcie3", "rtx-4090", "8xpcie3+100gbe"),
            ("72xnvlink5", "b200", "72xnvlink5+400gbe"),
            ("4xpcie+25gbe", "rtx-4090", "4xpcie4+25gbe"),
            ("100gbe", "rtx-4090", "1xpcie4+100gbe"),
            ("pcie5+hdr", "h200", "8xpcie5+hdr"),
        ] {
            let links: Links = said.parse().unwrap();
            assert_eq!(links.to_string(), said);
            let card = Card::named(card).unwrap();
            assert_eq!(links.of(Some(card.links())).to_string(), connected, "{said}");
        }
        for wrong in [
            "",
            "x",
            "8x",
            "nvlink2",
            "8x100gbe",
            "100gbe+nvlink",
            "0xpcie4",
            "+8xpcie4",
            "8xpcie4+",
            "pcie4+pcie4",
        ] {
            assert!(wrong.parse::<Links>().is_err(), "{wrong}");
        }
        assert_eq!(Links::OF_GPU.of(None).to_string(), "8xpcie4+100gbe");
    }

    #[test]
    fn every_card_has_a_link_and_a_slot() {
        for card in &CARDS {
            let found = Links::OF_GPU.of(Some(card.links()));
            assert_eq!(found.within.name, card.link, "{}", card.name);
            assert!(Kind::named(card.links()[1]).is_some(), "{}", card.name);
        }
    }

    #[test]
    fn links_are_named_as_far_as_ranks_reach() {
        let links = "8xnvlink4+400gbe".parse::<Links>().unwrap().of(None);
        assert!(
            !links.describe(8).contains("nodes") && links.describe(16).contains("nodes by 400gbe")
        );
        assert!("100gbe".parse::<Links>().unwrap().of(None).describe(2).starts_with("100gbe"));
    }
}
