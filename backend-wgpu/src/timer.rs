//! The device's own clock around submissions.

use futures_channel::oneshot;
use tightrope_core::DeviceError;

use crate::device::Device;

/// Submissions that are remembered.
const SLOTS: u32 = 1024;
/// Bytes of a timestamp.
const STAMP: u64 = 8;

/// Timestamps at the begin and the end of submissions.
pub struct Timer {
    queries: wgpu::QuerySet,
    resolved: wgpu::Buffer,
    staging: wgpu::Buffer,
    used: u32,
}

impl Timer {
    /// A timer without submissions.
    pub fn new(device: &Device) -> Self {
        let queries = device.device.create_query_set(&wgpu::QuerySetDescriptor {
            label: Some("submissions"),
            ty: wgpu::QueryType::Timestamp,
            count: 2 * SLOTS,
        });
        let buffer = |usage| {
            device.device.create_buffer(&wgpu::BufferDescriptor {
                label: Some("timestamps"),
                size: u64::from(2 * SLOTS) * STAMP,
                usage,
                mapped_at_creation: false,
            })
        };
        let resolved = buffer(wgpu::BufferUsages::QUERY_RESOLVE | wgpu::BufferUsages::COPY_SRC);
        let staging = buffer(wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST);
        Self { queries, resolved, staging, used: 0 }
    }

    /// Where the next submission writes its begin and end. Once all slots are used, the last is overwritten.
    pub fn next(&mut self) -> wgpu::ComputePassTimestampWrites<'_> {
        let slot = self.used.min(SLOTS - 1);
        self.used = slot + 1;
        wgpu::ComputePassTimestampWrites {
            query_set: &self.queries,
            beginning_of_pass_write_index: Some(2 * slot),
            end_of_pass_write_index: Some(2 * slot + 1),
        }
    }

    /// Waits, and gives the seconds of each submission since the last call.
    ///
    /// # Errors
    /// The device's failure.
    pub async fn seconds(&mut self, device: &Device) -> Result<Vec<f64>, DeviceError> {
        let stamps = 2 * std::mem::take(&mut self.used);
        if stamps == 0 {
            return Ok(vec![]);
        }
        let bytes = u64::from(stamps) * STAMP;
        let mut encoder = device.device.create_command_encoder(&Default::default());
        encoder.resolve_query_set(&self.queries, 0..stamps, &self.resolved, 0);
        encoder.copy_buffer_to_buffer(&self.resolved, 0, &self.staging, 0, bytes);
        device.queue.submit([encoder.finish()]);
        let (sender, receiver) = oneshot::channel();
        self.staging.slice(..bytes).map_async(wgpu::MapMode::Read, move |result| {
            // The receiver is gone where the wait was given up.
            let _ = sender.send(result);
        });
        let polled = device.device.poll(wgpu::PollType::wait_indefinitely());
        polled.map_err(|error| device.lost(&error.to_string()))?;
        let mapped = receiver.await.map_err(|_| device.lost("the device answers no more"))?;
        mapped.map_err(|error| device.lost(&error.to_string()))?;
        let view = self.staging.slice(..bytes).get_mapped_range();
        let view = view.map_err(|error| device.lost(&error.to_string()))?;
        let stamps: Vec<u64> = bytemuck::pod_collect_to_vec(&view);
        drop(view);
        self.staging.unmap();
        let period = f64::from(device.queue.get_timestamp_period()) * 1e-9;
        Ok(stamps
            .chunks_exact(2)
            .map(|pair| pair[1].saturating_sub(pair[0]) as f64 * period)
            .collect())
    }
}
