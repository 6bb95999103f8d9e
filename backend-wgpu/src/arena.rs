//! The arena in one or several buffers, and moving bytes to and from it.

use std::future::Future;
use std::ops::Range;
use std::pin::Pin;

use futures_channel::oneshot;
use tightrope_core::DeviceError;

use crate::device::Device;

/// Bytes that a read moves at a time; a longer one takes several turns.
pub const STAGING_BYTES: u64 = 1 << 20;

/// Labels of the buffers of a plan, by which the device's allocator reports them.
const ARENA: &str = "arena";
const STAGING: &str = "staging";
/// That of the parameters of launches.
pub const PARAMETERS: &str = "parameters";

/// Bytes that the device's allocator says it gave to the buffers of a plan; `None` where it doesn't say.
pub fn reported_bytes(device: &Device) -> Option<u64> {
    // What the device is done with is given back now.
    let _ = device.device.poll(wgpu::PollType::Poll);
    let report = device.device.generate_allocator_report()?;
    let of_plan = |name: &str| [ARENA, STAGING, PARAMETERS].contains(&name);
    let allocations = report.allocations.iter().filter(|allocation| of_plan(&allocation.name));
    Some(allocations.map(|allocation| allocation.size).sum())
}

/// Buffers are cut at multiples of this.
const GRANULE: u64 = 256;

/// Bytes of one buffer of the arena: what the device takes, in whole granules.
pub fn page_bytes(device: &Device) -> u64 {
    // A mapped or copied range is addressed in 32 bits by some drivers; pages of 1 GiB keep clear of that.
    const LARGEST: u64 = 1 << 30;
    device.description.buffer_bytes.min(LARGEST) / GRANULE * GRANULE
}

/// What the device says of one allocation.
pub struct Answer {
    /// The part of the arena.
    pub range: Range<u64>,
    /// Its error, where it had no room.
    pub error: Pin<Box<dyn Future<Output = Option<wgpu::Error>>>>,
}

/// The memory of a plan.
pub struct Arena {
    pages: Vec<wgpu::Buffer>,
    page_bytes: u64,
    staging: wgpu::Buffer,
}

impl Arena {
    /// Allocates `bytes` of zeros and what reads go through. Whether the device had them, it answers later.
    pub fn new(device: &Device, bytes: u64) -> (Self, Vec<Answer>) {
        let page_bytes = page_bytes(device);
        let usage = wgpu::BufferUsages::STORAGE
            | wgpu::BufferUsages::COPY_SRC
            | wgpu::BufferUsages::COPY_DST;
        let mut answers = vec![];
        let mut guarded = |label: &str, range: Range<u64>, usage| {
            let scope = device.device.push_error_scope(wgpu::ErrorFilter::OutOfMemory);
            let buffer = buffer(device, label, range.end - range.start, usage);
            answers.push(Answer { range, error: Box::pin(scope.pop()) });
            buffer
        };
        let pages: Vec<wgpu::Buffer> = (0..bytes.div_ceil(page_bytes))
            .map(|page| page * page_bytes..bytes.min((page + 1) * page_bytes))
            .map(|range| guarded(ARENA, range, usage))
            .collect();
        let usage = wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST;
        let staging = guarded(STAGING, bytes..bytes + STAGING_BYTES, usage);
        (Self { pages, page_bytes, staging }, answers)
    }

    /// Bytes of all buffers.
    pub fn buffer_bytes(&self) -> u64 {
        self.pages.iter().chain([&self.staging]).map(wgpu::Buffer::size).sum()
    }

    /// The buffer and the range in it of arena bytes `start..start + len`, which lie in one page.
    pub fn binding(&self, start: u64, len: u64) -> wgpu::BufferBinding<'_> {
        let page = &self.pages[(start / self.page_bytes) as usize];
        let offset = start % self.page_bytes;
        // Four elements are accessed at once; what pads the last is the tensor's own.
        let size = len.next_multiple_of(16).min(page.size() - offset);
        wgpu::BufferBinding { buffer: page, offset, size: wgpu::BufferSize::new(size) }
    }

    /// The parts of a byte range, each in one page.
    fn parts(&self, range: Range<u64>) -> impl Iterator<Item = Range<u64>> + use<> {
        let page = self.page_bytes;
        let mut start = range.start;
        std::iter::from_fn(move || {
            let end = ((start / page + 1) * page).min(range.end);
            let part = (start < range.end).then_some(start..end);
            start = end;
            part
        })
    }

    /// Queues writing `data` at arena offset `at`, a multiple of 4.
    pub fn write(&self, device: &Device, at: u64, data: &[u8]) {
        for part in self.parts(at..at + data.len() as u64) {
            let bytes = &data[(part.start - at) as usize..(part.end - at) as usize];
            let page = &self.pages[(part.start / self.page_bytes) as usize];
            let offset = part.start % self.page_bytes;
            // Copies move whole words. What follows a tensor within its last word is padding.
            let whole = bytes.len() / 4 * 4;
            if whole > 0 {
                device.queue.write_buffer(page, offset, &bytes[..whole]);
            }
            if whole < bytes.len() {
                let mut last = [0; 4];
                last[..bytes.len() - whole].copy_from_slice(&bytes[whole..]);
                device.queue.write_buffer(page, offset + whole as u64, &last);
            }
        }
    }

    /// Waits for everything queued and reads byte ranges, one after the other.
    ///
    /// # Errors
    /// The device's failure.
    pub async fn read(
        &self,
        device: &Device,
        ranges: &[Range<u64>],
    ) -> Result<Vec<u8>, DeviceError> {
        let mut bytes = vec![];
        let mut turn: Vec<Range<u64>> = vec![];
        let padded = |range: &Range<u64>| (range.end - range.start).next_multiple_of(4);
        for range in ranges {
            for part in self.parts(range.clone()) {
                let mut start = part.start;
                while start < part.end {
                    let used: u64 = turn.iter().map(padded).sum();
                    if used + 4 > STAGING_BYTES {
                        self.read_turn(device, &turn, &mut bytes).await?;
                        turn.clear();
                        continue;
                    }
                    let end = part.end.min(start + STAGING_BYTES - used);
                    turn.push(start..end);
                    start = end;
                }
            }
        }
        self.read_turn(device, &turn, &mut bytes).await?;
        Ok(bytes)
    }

    /// Reads ranges that fit the staging buffer together.
    async fn read_turn(
        &self,
        device: &Device,
        ranges: &[Range<u64>],
        bytes: &mut Vec<u8>,
    ) -> Result<(), DeviceError> {
        device.check()?;
        let mut encoder = device.device.create_command_encoder(&Default::default());
        let mut end = 0;
        for range in ranges {
            let page = &self.pages[(range.start / self.page_bytes) as usize];
            let (offset, size) =
                (range.start % self.page_bytes, (range.end - range.start).next_multiple_of(4));
            encoder.copy_buffer_to_buffer(page, offset, &self.staging, end, size);
            end += size;
        }
        device.queue.submit([encoder.finish()]);
        let mapped = map(device, &self.staging, end).await;
        device.check()?;
        mapped?;
        let view = self.staging.slice(..end).get_mapped_range();
        let view = view.map_err(|error| device.lost(&error.to_string()))?;
        let mut start = 0;
        for range in ranges {
            let len = (range.end - range.start) as usize;
            bytes.extend_from_slice(&view[start..start + len]);
            start += len.next_multiple_of(4);
        }
        drop(view);
        self.staging.unmap();
        Ok(())
    }
}

impl Drop for Arena {
    /// Garbage collection in a browser comes too late for a plan that needs the room.
    fn drop(&mut self) {
        self.pages.iter().chain([&self.staging]).for_each(wgpu::Buffer::destroy);
    }
}

fn buffer(device: &Device, label: &str, size: u64, usage: wgpu::BufferUsages) -> wgpu::Buffer {
    let descriptor =
        wgpu::BufferDescriptor { label: Some(label), size, usage, mapped_at_creation: false };
    device.device.create_buffer(&descriptor)
}

/// Waits until the first `bytes` of `buffer` are there for the host.
///
/// # Errors
/// The device's failure.
pub async fn map(device: &Device, buffer: &wgpu::Buffer, bytes: u64) -> Result<(), DeviceError> {
    let (sender, receiver) = oneshot::channel();
    buffer.slice(..bytes).map_async(wgpu::MapMode::Read, move |result| {
        // The receiver is gone where the read was given up; then nobody asks.
        let _ = sender.send(result);
    });
    // In a browser the event loop does this.
    let polled = device.device.poll(wgpu::PollType::wait_indefinitely());
    polled.map_err(|error| device.lost(&error.to_string()))?;
    match receiver.await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(device.lost(&error.to_string())),
        Err(_) => Err(device.lost("the device answers no more")),
    }
}
