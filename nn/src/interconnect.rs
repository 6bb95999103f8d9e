//! What carries bytes between ranks, and how long that takes.

/// The link of one rank to others.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Link {
    /// Bytes that it sends in a second, while it receives as many.
    pub bytes: f64,
    /// Seconds until the first of several messages has come, without its bytes.
    pub first_s: f64,
    /// Seconds that each further message adds, without its bytes.
    pub message_s: f64,
}

/// The links of every rank: those to ranks of its own node, and those to ranks of others.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interconnect {
    /// Ranks of a node.
    pub node: usize,
    /// Between ranks of a node.
    pub within: Link,
    /// Between nodes.
    pub between: Link,
}

impl Link {
    /// Seconds of so many messages of `bytes` each.
    fn seconds(&self, messages: usize, bytes: f64) -> f64 {
        match messages as f64 {
            0.0 => 0.0,
            messages => {
                self.first_s + (messages - 1.0) * self.message_s + messages * bytes / self.bytes
            }
        }
    }
}

impl Interconnect {
    /// Seconds until each of `ranks` has `bytes` of every other, which all send at once. Both links work at the same time.
    pub fn seconds(&self, ranks: usize, bytes: f64) -> f64 {
        let node = self.node.clamp(1, ranks.max(1));
        let within = self.within.seconds(node - 1, bytes);
        within.max(self.between.seconds(ranks.max(1) - node, bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WITHIN: Link = Link { bytes: 100.0, first_s: 3.0, message_s: 1.0 };
    const BETWEEN: Link = Link { bytes: 10.0, first_s: 20.0, message_s: 2.0 };

    #[test]
    fn every_rank_sends_to_all_others_over_both_links_at_once() {
        let links = Interconnect { node: 8, within: WITHIN, between: BETWEEN };
        assert_eq!(links.seconds(1, 50.0), 0.0);
        // Seven messages of half a second each.
        assert_eq!(links.seconds(8, 50.0), 3.0 + 6.0 + 3.5);
        assert_eq!(links.seconds(2, 50.0), 3.0 + 0.5);
        // Eight more to the other node, of five seconds each, during which those within arrive.
        assert_eq!(links.seconds(16, 50.0), 20.0 + 14.0 + 40.0);
        let far = Interconnect { node: 1, ..links };
        assert_eq!(far.seconds(2, 50.0), 20.0 + 5.0);
    }
}
