//! Submissions that the device hasn't done. The host waits for the oldest where there are several, so that a request to stop finds little
//! left to be done.

use std::collections::VecDeque;

use crate::device::Device;

/// Submissions that may be in flight: enough to keep a device busy, each of at most [`SUBMISSION_S`](crate::pace::SUBMISSION_S).
const MOST: usize = 8;

/// Submissions in their order.
#[derive(Default)]
pub struct InFlight(VecDeque<wgpu::SubmissionIndex>);

impl InFlight {
    /// Adds a submission, and waits for the oldest where there are too many. A browser lets nobody wait.
    pub fn push(&mut self, device: &Device, submission: wgpu::SubmissionIndex) {
        if cfg!(target_family = "wasm") {
            return;
        }
        self.0.push_back(submission);
        if self.0.len() > MOST {
            let oldest = self.0.pop_front();
            // A device that is lost is found by whoever asks it next.
            let _ = device
                .device
                .poll(wgpu::PollType::Wait { submission_index: oldest, timeout: None });
        }
    }
}
