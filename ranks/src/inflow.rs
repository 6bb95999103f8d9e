//! `Inflow`: how much a peer may send. The thread that reads a connection asks it before it makes room for a message.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crate::carrier::MESSAGE;
use crate::message::{CONTROL, HEADER};
use crate::transport::Tag;

/// Bytes of headers and data that are kept of one peer before this rank asks for them. A peer that has sent as many waits.
const AHEAD: usize = 1 << 30;
/// Control messages that are kept of one peer.
const CONTROLS: usize = 1024;

/// The messages of one peer: those that were asked for, and those that wait to be taken.
#[derive(Default)]
pub struct Inflow {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// By tag: messages that may be read.
    admitted: [u64; Tag::COUNT],
    /// By tag: messages that were asked for.
    asked: [u64; Tag::COUNT],
    /// Lengths of data messages that were asked for and aren't admitted.
    lengths: VecDeque<usize>,
    /// Bytes of headers and data that were admitted and aren't taken.
    kept: usize,
    /// Control messages that were admitted and aren't taken.
    controls: usize,
    closed: bool,
    /// Why reading has ended, where the peer is at fault.
    fault: Option<String>,
}

impl State {
    /// True if the next message of this tag may be kept.
    fn has_room(&self, tag: Tag, length: usize) -> bool {
        let is_asked = self.admitted[tag as usize] < self.asked[tag as usize];
        match tag {
            Tag::Control => self.controls < CONTROLS,
            Tag::Header | Tag::Data => {
                is_asked || self.kept == 0 || self.kept.saturating_add(length) <= AHEAD
            }
        }
    }
}

impl Inflow {
    fn state(&self) -> MutexGuard<'_, State> {
        // Each change is whole, whatever panics after it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that this rank asks for the message of this number, which has to have this length.
    pub fn ask(&self, tag: Tag, number: u64, length: usize) {
        let mut state = self.state();
        state.asked[tag as usize] = number + 1;
        if tag == Tag::Data && number >= state.admitted[tag as usize] {
            state.lengths.push_back(length);
        }
        self.changed.notify_all();
    }

    /// Notes that this rank has taken a message.
    pub fn take(&self, tag: Tag, length: usize) {
        let mut state = self.state();
        match tag {
            Tag::Control => state.controls = state.controls.saturating_sub(1),
            Tag::Header | Tag::Data => state.kept = state.kept.saturating_sub(length),
        }
        self.changed.notify_all();
    }

    /// Notes that this rank takes no more.
    pub fn close(&self) {
        self.state().closed = true;
        self.changed.notify_all();
    }

    /// Notes why reading has ended.
    pub fn refuse(&self, reason: String) {
        self.state().fault = Some(reason);
    }

    /// Why reading has ended, where the peer is at fault.
    pub fn fault(&self) -> Option<String> {
        self.state().fault.clone()
    }

    /// Waits until a message of this tag and length may be read; `None` if this rank takes no more.
    ///
    /// # Errors
    /// A length that no message of this tag has, or another one than this rank has asked for.
    pub fn admit(&self, tag: Tag, length: u64) -> Result<Option<usize>, String> {
        let longest = match tag {
            Tag::Header => HEADER,
            Tag::Data => MESSAGE,
            Tag::Control => CONTROL,
        };
        let too_long =
            || format!("it announced a message of {length} bytes, where {longest} are the most");
        let length = usize::try_from(length).ok().filter(|&length| length <= longest);
        let length = length.ok_or_else(too_long)?;
        if tag != Tag::Data && length != longest {
            let reason = format!("it announced a message of {length} bytes instead of {longest}");
            return Err(reason);
        }
        let mut state = self.state();
        while !state.closed && !state.has_room(tag, length) {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.closed {
            return Ok(None);
        }
        if let Some(asked) = (tag == Tag::Data).then(|| state.lengths.pop_front()).flatten()
            && asked != length
        {
            return Err(format!("it sent {length} bytes where {asked} are expected"));
        }
        state.admitted[tag as usize] += 1;
        match tag {
            Tag::Control => state.controls += 1,
            Tag::Header | Tag::Data => state.kept += length,
        }
        Ok(Some(length))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::thread;
    use std::time::Duration;

    use super::*;

    #[test]
    fn lengths_that_no_message_has_are_refused() {
        let inflow = Inflow::default();
        for (tag, length) in [
            (Tag::Header, 0),
            (Tag::Header, HEADER as u64 + 1),
            (Tag::Control, 1),
            (Tag::Control, 1 << 38),
            (Tag::Data, MESSAGE as u64 + 1),
            (Tag::Data, 1 << 38),
            (Tag::Data, 1 << 63),
            (Tag::Data, u64::MAX),
        ] {
            let said = inflow.admit(tag, length).unwrap_err();
            assert!(said.contains(&format!("announced a message of {length} bytes")), "{said}");
        }
        assert_eq!(inflow.admit(Tag::Header, HEADER as u64), Ok(Some(HEADER)));
        assert_eq!(inflow.admit(Tag::Control, CONTROL as u64), Ok(Some(CONTROL)));
        assert_eq!(inflow.admit(Tag::Data, MESSAGE as u64), Ok(Some(MESSAGE)));
    }

    #[test]
    fn data_has_the_length_that_was_asked_for() {
        let inflow = Inflow::default();
        // The first comes before it's asked for; whoever takes it compares lengths.
        assert_eq!(inflow.admit(Tag::Data, 5), Ok(Some(5)));
        for (number, length) in [(0, 7), (1, 4), (2, 6)] {
            inflow.ask(Tag::Data, number, length);
        }
        assert_eq!(inflow.admit(Tag::Data, 4), Ok(Some(4)));
        let said = inflow.admit(Tag::Data, 1 << 20).unwrap_err();
        assert_eq!(said, "it sent 1048576 bytes where 6 are expected");
    }

    #[test]
    fn a_peer_that_is_far_ahead_waits_until_it_is_asked() {
        let inflow = Inflow::default();
        let length = MESSAGE as u64;
        let messages = (AHEAD / MESSAGE) as u64;
        for _ in 0..messages {
            assert_eq!(inflow.admit(Tag::Data, length), Ok(Some(MESSAGE)));
        }
        thread::scope(|scope| {
            let (sender, admitted) = channel();
            let inflow = &inflow;
            scope.spawn(move || {
                for _ in 0..3 {
                    sender.send(inflow.admit(Tag::Data, length)).unwrap();
                }
            });
            let short = Duration::from_millis(100);
            assert!(admitted.recv_timeout(short).is_err(), "it didn't wait");
            // Taking a message makes room.
            inflow.take(Tag::Data, MESSAGE);
            assert_eq!(admitted.recv().unwrap(), Ok(Some(MESSAGE)));
            assert!(admitted.recv_timeout(short).is_err(), "it didn't wait");
            // Messages that were asked for are read, whatever else is kept.
            (0..messages + 2).for_each(|number| inflow.ask(Tag::Data, number, MESSAGE));
            assert_eq!(admitted.recv().unwrap(), Ok(Some(MESSAGE)));
            assert!(admitted.recv_timeout(short).is_err(), "it didn't wait");
            inflow.close();
            assert_eq!(admitted.recv().unwrap(), Ok(None));
        });
    }
}
