//! Writes on their way to a device: copied to memory that it can fetch from by itself, so that nobody waits for it.

use tightrope_core::DeviceError;

use super::Driver;

/// Halves of the staging memory: copies read one while the other is filled.
pub const HALVES: usize = 2;

/// Bytes of a half: several steps' tokens, so that the device is done with a half long before it's filled again.
pub const HALF_BYTES: usize = 4 << 20;

/// Where the next write goes.
#[derive(Debug, Default)]
pub struct Staging {
    half: usize,
    filled: usize,
}

impl Staging {
    /// Writes `data` to the device's allocation at offset `at`, after everything that it was asked for before. The host
    /// waits only where the device is a whole half behind.
    ///
    /// # Errors
    /// [`DeviceError::Lost`].
    pub fn write(
        &mut self,
        driver: &mut dyn Driver,
        at: u64,
        data: &[u8],
    ) -> Result<(), DeviceError> {
        let (mut to, mut rest) = (at, data);
        while !rest.is_empty() {
            if self.filled == HALF_BYTES {
                driver.mark(self.half)?;
                (self.half, self.filled) = ((self.half + 1) % HALVES, 0);
                driver.wait(self.half)?;
            }
            let (part, after) = rest.split_at(rest.len().min(HALF_BYTES - self.filled));
            let start = self.half * HALF_BYTES + self.filled;
            let from = start..start + part.len();
            driver.staging()[from.clone()].copy_from_slice(part);
            driver.copy(from, to)?;
            self.filled += part.len();
            to += part.len() as u64;
            rest = after;
        }
        Ok(())
    }
}
