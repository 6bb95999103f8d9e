//! A session whose device makes collectives itself: while the host waits for the device, it hears the other ranks, so that one that is lost
//! is named. A device that waits for it would wait for ever.

use std::time::{Duration, Instant};
use std::{hint, thread};

use super::{Session, SessionError};

/// What a rank says that it waits for.
const WHAT: &str = "its device, which exchanges with the others";

/// How long a device is asked again and again, before the host sleeps between.
const SPIN: Duration = Duration::from_millis(1);
/// How long it sleeps.
const SLEEP: Duration = Duration::from_micros(100);
/// How long it is between looks at the other ranks.
const EACH_LOOK: Duration = Duration::from_millis(20);
/// How long the ranks are heard after a link is broken, for the one at fault to be named.
const HEARD: Duration = Duration::from_secs(1);

impl Session {
    /// Waits until a device that exchanges with those of other ranks has done everything.
    ///
    /// # Errors
    /// [`SessionError::Ranks`], which names a rank that is lost, and those of the device.
    pub(super) fn wait_for_ranks(&mut self) -> Result<(), SessionError> {
        if !self.linked {
            return Ok(());
        }
        let (Some(links), Some(ranks)) = (self.backend.links(), &mut self.ranks) else {
            return Ok(());
        };
        let since = Instant::now();
        let mut looked = since;
        loop {
            match links.is_done() {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                Err(error) => {
                    let broken = Instant::now();
                    while broken.elapsed() < HEARD {
                        ranks.watch(WHAT, since)?;
                        thread::sleep(SLEEP);
                    }
                    return Err(error.into());
                }
            }
            if looked.elapsed() >= EACH_LOOK {
                looked = Instant::now();
                if let Err(error) = ranks.watch(WHAT, since) {
                    links.leave();
                    return Err(error.into());
                }
            }
            match since.elapsed() < SPIN {
                true => hint::spin_loop(),
                false => thread::sleep(SLEEP),
            }
        }
    }
}
