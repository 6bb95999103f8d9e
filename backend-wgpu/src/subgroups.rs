//! Whether neighbouring threads form subgroups as kernels assume. Neither WGSL nor Vulkan says which threads of a
//! workgroup share a subgroup, so a kernel that asks them runs when a device is opened.

use tightrope_core::DeviceError;

use crate::arena;
use crate::device::Device;

/// Threads of the workgroups that kernels reduce with.
const WORKGROUPS: [u32; 2] = [64, 256];
/// Workgroups that are asked.
const GROUPS: u32 = 16;
/// Bytes of an answer.
const ANSWER: u64 = 4;

const PROBE: &str = include_str!("../../shaders/shared/probe.wgsl");

/// Threads of a subgroup, where all subgroups have as many and are neighbouring threads in their order.
///
/// # Errors
/// The device's failure.
pub async fn threads(device: &Device) -> Result<Option<u32>, DeviceError> {
    let Some((least, most)) = device.description.subgroups else { return Ok(None) };
    if least != most || !least.is_power_of_two() {
        return Ok(None);
    }
    for workgroup in WORKGROUPS.map(|threads| threads.min(device.limits.workgroup)) {
        match holds(device, workgroup, least).await {
            Ok(true) => {}
            Ok(false) => return Ok(None),
            // A device that doesn't compile it goes on without subgroups; one that is lost doesn't go on.
            Err(error) => {
                let kept = device.failure.take();
                let lost = matches!(kept, Err(DeviceError::Lost { .. }));
                return if lost { Err(error) } else { Ok(None) };
            }
        }
    }
    Ok(Some(least))
}

/// Whether every thread finds itself and its neighbours where a subgroup of `threads` has them.
async fn holds(device: &Device, workgroup: u32, threads: u32) -> Result<bool, DeviceError> {
    let text =
        format!("const WORKGROUP: u32 = {workgroup}u;\nconst SUBGROUP: u32 = {threads}u;\n{PROBE}");
    let wgpu = &device.device;
    let module = wgpu.create_shader_module(wgpu::ShaderModuleDescriptor {
        label: Some("probe"),
        source: wgpu::ShaderSource::Wgsl(text.into()),
    });
    let pipeline = wgpu.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
        label: Some("probe"),
        layout: None,
        module: &module,
        entry_point: Some("probe"),
        compilation_options: wgpu::PipelineCompilationOptions::default(),
        cache: None,
    });
    let size = u64::from(GROUPS * workgroup) * ANSWER;
    let buffer = |usage| {
        wgpu.create_buffer(&wgpu::BufferDescriptor {
            label: Some("answers"),
            size,
            usage,
            mapped_at_creation: false,
        })
    };
    let answers = buffer(wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC);
    let staging = buffer(wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST);
    let bindings = wgpu.create_bind_group(&wgpu::BindGroupDescriptor {
        label: Some("answers"),
        layout: &pipeline.get_bind_group_layout(0),
        entries: &[wgpu::BindGroupEntry { binding: 0, resource: answers.as_entire_binding() }],
    });
    let mut encoder = wgpu.create_command_encoder(&Default::default());
    let mut pass = encoder.begin_compute_pass(&Default::default());
    pass.set_pipeline(&pipeline);
    pass.set_bind_group(0, &bindings, &[]);
    pass.dispatch_workgroups(GROUPS, 1, 1);
    drop(pass);
    encoder.copy_buffer_to_buffer(&answers, 0, &staging, 0, size);
    device.queue.submit([encoder.finish()]);
    arena::map(device, &staging, size).await?;
    device.check()?;
    let view = staging.slice(..size).get_mapped_range();
    let view = view.map_err(|error| device.lost(&error.to_string()))?;
    Ok(bytemuck::pod_collect_to_vec::<u8, u32>(&view).iter().all(|&answer| answer == 1))
}
