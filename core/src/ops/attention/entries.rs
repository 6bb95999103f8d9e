//! Entries of attention by warpgroups, and what launches of all kinds know of them.

/// Values, the gradient, and what comes before it.
pub(super) const FORWARD: &str = "forward_wgmma";
pub(super) const GRAD: &str = "grad_wgmma";
pub(super) const BEGIN_GRAD: &str = "begin_ordered";

/// Queries of a tile, and its keys.
pub(super) const GROUP_TILE: u32 = 128;

/// The name that kernel files have for what counts how many blocks have added.
pub(super) const COUNTS: &str = "counts";

/// And for the logs of normalisers that it brings next to what slopes subtract.
pub(super) const LSE: &str = "lse";
