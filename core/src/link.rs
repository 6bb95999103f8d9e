//! `link`: gives devices their own way to those of the other ranks, as NCCL is one. Then collectives are tasks of the device, between its
//! kernels, and the host's [`Ranks`] carry what is left: settings that are compared, and what checkpoints read.

use crate::backend::{Backend, Linked};
use crate::plan::Target;
use crate::ranks::{Ranks, RanksError};

/// Bytes in which each rank says whether it can be linked: one that tells yes from no, and an invitation or words, filled up with zeros.
const SAID: usize = 512;

/// Who carries what collectives send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Link {
    /// The devices.
    Devices(Linked),
    /// The hosts, and why the devices can't, where some can.
    Hosts(Option<String>),
}

/// Links the devices of all ranks, where each can be: the hosts carry what is sent where one can't. All ranks call this at the same
/// place, before the plan is prepared.
///
/// # Errors
/// A rank that doesn't answer.
pub fn link(device: &mut dyn Backend, ranks: &mut dyn Ranks) -> Result<Link, RanksError> {
    let (rank, count) = (ranks.rank(), ranks.count());
    let invited = match device.links() {
        Some(links) => links.invite(rank),
        None => Err(String::new()),
    };
    let said = all_said(ranks, &invited)?;
    if said.iter().all(|said| said.as_ref().is_err_and(String::is_empty)) {
        return Ok(Link::Hosts(None));
    }
    let has_none = || "its device has no link of its own".to_owned();
    let refusal = |said: &[Result<Vec<u8>, String>]| {
        said.iter().enumerate().find_map(|(rank, said)| {
            let words = said.as_ref().err()?;
            let words = if words.is_empty() { has_none() } else { words.clone() };
            Some(format!("rank {rank}: {words}"))
        })
    };
    if let Some(why) = refusal(&said) {
        return Ok(Link::Hosts(Some(why)));
    }
    let invitation = said.into_iter().next().and_then(Result::ok).unwrap_or_default();
    let Some(links) = device.links() else { return Ok(Link::Hosts(None)) };
    let joined = links.join(&invitation, rank, count);
    let said = all_said(ranks, &joined.map(|()| vec![]))?;
    if let Some(why) = refusal(&said) {
        links.leave();
        return Ok(Link::Hosts(Some(why)));
    }
    Ok(links.linked().map_or(Link::Hosts(None), Link::Devices))
}

/// Whether the devices of all ranks exchange beside other ops. Where one doesn't, none may be planned for it, for all have to exchange in
/// the same order: see [`Options::overlap`](crate::plan::Options::overlap). All ranks call this at the same place, before they plan.
///
/// # Errors
/// A rank that doesn't answer.
pub fn all_overlap(device: &dyn Target, ranks: &mut dyn Ranks) -> Result<bool, RanksError> {
    let own = vec![u8::from(device.links_overlap())];
    let ticket = ranks.begin_gather("whether devices exchange beside other ops", own)?;
    Ok(ranks.finish(ticket)?.iter().all(|&overlaps| overlaps == 1))
}

/// What each rank says, in the order of ranks.
fn all_said(
    ranks: &mut dyn Ranks,
    own: &Result<Vec<u8>, String>,
) -> Result<Vec<Result<Vec<u8>, String>>, RanksError> {
    let (well, bytes) = match own {
        Ok(bytes) => (1, &bytes[..]),
        Err(words) => (0, &words.as_bytes()[..words.floor_char_boundary(SAID - 3)]),
    };
    let mut said = vec![well];
    said.extend((bytes.len() as u16).to_le_bytes());
    said.extend(bytes);
    said.resize(SAID, 0);
    let ticket = ranks.begin_gather("what links devices", said)?;
    let all = ranks.finish(ticket)?;
    let read = |said: &[u8]| {
        let length = usize::from(u16::from_le_bytes([said[1], said[2]])).min(SAID - 3);
        let bytes = said[3..3 + length].to_vec();
        match said[0] {
            1 => Ok(bytes),
            _ => Err(String::from_utf8_lossy(&bytes).into_owned()),
        }
    };
    Ok(all.chunks_exact(SAID).map(read).collect())
}
