//! A plan as pipelines, bind groups and dispatches.

use std::collections::HashMap;
use std::ops::Range;

use tightrope_core::launch::{Launch, Limits, Source};
use tightrope_core::ops::Cost;
use tightrope_core::{DeviceError, Node, Plan, Rule};

use crate::arena::{self, Arena};
use crate::device::Device;
use crate::source;

/// Bytes between the parameters of two launches: a uniform's alignment that every adapter takes.
pub const PARAMETER_STRIDE: u64 = 256;

/// Workgroups along one axis of a grid (gpuweb specification, maxComputeWorkgroupsPerDimension).
const LARGEST_AXIS: u64 = 65_535;

/// A dispatch, ready to be encoded.
pub struct Dispatch {
    pipeline: wgpu::ComputePipeline,
    bindings: wgpu::BindGroup,
    grid: [u32; 2],
    /// What it takes.
    pub cost: Cost,
}

impl Dispatch {
    /// Appends it to a pass.
    pub fn encode(&self, pass: &mut wgpu::ComputePass<'_>) {
        let [x, y] = self.grid;
        pass.set_pipeline(&self.pipeline);
        pass.set_bind_group(0, &self.bindings, &[]);
        pass.dispatch_workgroups(x, y, 1);
    }
}

/// A step of a program: as it's listed, until it first runs.
enum Step {
    /// Launches, and the slot of the first one's parameters.
    Listed(Vec<Launch>, u64),
    Ready(Vec<Dispatch>),
}

/// All launches of a plan. Steps are compiled when they are asked for: a browser may take seconds for those of a
/// program, and training needn't wait for evaluation and decoding.
#[derive(Default)]
pub struct Recording {
    /// By program and step.
    steps: Vec<Vec<Step>>,
    parameters: Option<wgpu::Buffer>,
}

impl Drop for Recording {
    fn drop(&mut self) {
        self.parameters.iter().for_each(wgpu::Buffer::destroy);
    }
}

/// Pipelines and layouts, kept across plans: the same text is compiled once a device.
#[derive(Default)]
pub struct Compiled {
    layouts: HashMap<usize, (wgpu::BindGroupLayout, wgpu::PipelineLayout)>,
    pipelines: HashMap<(String, &'static str), wgpu::ComputePipeline>,
}

impl Compiled {
    fn layout(
        &mut self,
        device: &Device,
        tensors: usize,
    ) -> &(wgpu::BindGroupLayout, wgpu::PipelineLayout) {
        self.layouts.entry(tensors).or_insert_with(|| {
            let entries: Vec<wgpu::BindGroupLayoutEntry> = (0..=tensors)
                .map(|binding| wgpu::BindGroupLayoutEntry {
                    binding: binding as u32,
                    visibility: wgpu::ShaderStages::COMPUTE,
                    ty: wgpu::BindingType::Buffer {
                        ty: if binding < tensors {
                            wgpu::BufferBindingType::Storage { read_only: false }
                        } else {
                            wgpu::BufferBindingType::Uniform
                        },
                        has_dynamic_offset: false,
                        min_binding_size: None,
                    },
                    count: None,
                })
                .collect();
            let group = device.device.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor {
                label: None,
                entries: &entries,
            });
            let layout = device.device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
                label: None,
                bind_group_layouts: &[Some(&group)],
                ..Default::default()
            });
            (group, layout)
        })
    }

    fn pipeline(
        &mut self,
        device: &Device,
        launch: &Launch,
        bindings: &[usize],
        tensors: usize,
    ) -> Result<wgpu::ComputePipeline, DeviceError> {
        let label = format!("{}.{}", launch.kernel, launch.entry);
        let text = source::assemble(launch, bindings, device.limits.webgpu())
            .map_err(|log| DeviceError::Compile { kernel: label.clone(), log })?;
        if let Some(pipeline) = self.pipelines.get(&(text.clone(), launch.entry)) {
            return Ok(pipeline.clone());
        }
        #[cfg(feature = "faults")]
        let text = crate::faults::changed(device, &label, launch.entry, text);
        let module = device.device.create_shader_module(wgpu::ShaderModuleDescriptor {
            label: Some(&label),
            source: wgpu::ShaderSource::Wgsl(text.as_str().into()),
        });
        let layout = self.layout(device, tensors).1.clone();
        let pipeline = device.device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
            label: Some(&label),
            layout: Some(&layout),
            module: &module,
            entry_point: Some(launch.entry),
            compilation_options: wgpu::PipelineCompilationOptions {
                // Every kernel writes what it shares before it reads it.
                zero_initialize_workgroup_memory: false,
                ..Default::default()
            },
            cache: None,
        });
        self.pipelines.insert((text, launch.entry), pipeline.clone());
        Ok(pipeline)
    }
}

/// Bytes that a use of these launches keeps for its parameters.
pub fn parameter_bytes(launches: usize) -> u64 {
    launches as u64 * PARAMETER_STRIDE
}

impl Recording {
    /// Lists every launch of `plan`, and uploads their parameters.
    ///
    /// # Errors
    /// [`DeviceError::Compile`] where an op has no kernel.
    pub fn new(device: &Device, plan: &Plan) -> Result<Self, DeviceError> {
        let mut slot = 0;
        let mut steps = vec![];
        for program in &plan.graph.programs {
            let mut of_program = vec![];
            for node in &program.nodes {
                let listed = launches(plan, node, &device.limits)?;
                let next = slot + listed.len() as u64;
                of_program.push(Step::Listed(listed, slot));
                slot = next;
            }
            steps.push(of_program);
        }
        let listed = steps.iter().flatten().flat_map(|step| match step {
            Step::Listed(launches, _) => launches.as_slice(),
            Step::Ready(_) => &[],
        });
        let parameters = (slot > 0).then(|| upload(device, listed, slot as usize));
        Ok(Self { steps, parameters })
    }

    /// Compiles and binds some steps of a program, where that wasn't done.
    ///
    /// # Errors
    /// [`DeviceError::Compile`] where a kernel can't be put together.
    pub fn ready(
        &mut self,
        device: &Device,
        compiled: &mut Compiled,
        (plan, arena): (&Plan, &Arena),
        (program, range): (usize, Range<usize>),
    ) -> Result<(), DeviceError> {
        let nodes = &plan.graph.programs[program].nodes[range.clone()];
        let planned = &plan.programs[program].steps[range.clone()];
        let steps = &mut self.steps[program][range];
        for ((step, node), planned) in steps.iter_mut().zip(nodes).zip(planned) {
            let Step::Listed(launches, first) = step else { continue };
            let scratch = planned.workspace.map_or(0, |(offset, _)| offset);
            let bound = Bound { plan, node, scratch, arena };
            let mut dispatches = vec![];
            for (slot, launch) in (*first..).zip(&*launches) {
                if launch.identity && bound.ranges(launch).windows(2).all(|pair| pair[0] == pair[1])
                {
                    continue;
                }
                let parameters =
                    self.parameters.as_ref().map(|buffer| (buffer, slot * PARAMETER_STRIDE));
                dispatches.push(bound.dispatch(device, compiled, launch, parameters)?);
            }
            *step = Step::Ready(dispatches);
        }
        Ok(())
    }

    /// The dispatches of steps that are ready.
    pub fn dispatches(
        &self,
        program: usize,
        range: Range<usize>,
    ) -> impl Iterator<Item = &Dispatch> {
        self.steps[program][range].iter().flat_map(|step| match step {
            Step::Ready(dispatches) => dispatches.as_slice(),
            Step::Listed(..) => &[],
        })
    }

    /// Bytes of the parameters.
    pub fn buffer_bytes(&self) -> u64 {
        self.parameters.as_ref().map_or(0, wgpu::Buffer::size)
    }
}

fn launches(plan: &Plan, node: &Node, limits: &Limits) -> Result<Vec<Launch>, DeviceError> {
    let (inputs, outputs) = plan.graph.types(node);
    let launched = node.op.launch(limits, &inputs, &outputs);
    let launches =
        launched.map_err(|log| DeviceError::Compile { kernel: node.op.name().into(), log })?;
    Ok(launches.list)
}

/// The parameters of all launches, each at its slot.
fn upload<'a>(
    device: &Device,
    launches: impl Iterator<Item = &'a Launch>,
    count: usize,
) -> wgpu::Buffer {
    let buffer = device.device.create_buffer(&wgpu::BufferDescriptor {
        label: Some(arena::PARAMETERS),
        size: parameter_bytes(count),
        usage: wgpu::BufferUsages::UNIFORM | wgpu::BufferUsages::COPY_DST,
        mapped_at_creation: false,
    });
    let mut bytes = vec![];
    for (slot, launch) in launches.enumerate() {
        bytes.resize(slot * PARAMETER_STRIDE as usize, 0);
        bytes.extend(launch.words());
    }
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    device.queue.write_buffer(&buffer, 0, &bytes);
    buffer
}

/// A node with everything its launches are bound to.
struct Bound<'a> {
    plan: &'a Plan,
    node: &'a Node,
    scratch: u64,
    arena: &'a Arena,
}

impl Bound<'_> {
    /// Arena range of each operand of a launch.
    fn ranges(&self, launch: &Launch) -> Vec<Range<u64>> {
        let offset = |tensor| self.plan.range(tensor).map_or(0, |(offset, _)| offset);
        let range = |place: &tightrope_core::launch::Place| {
            let base = match place.source {
                Source::Input(index) => offset(self.node.inputs[index]),
                Source::Output(index) => offset(self.node.outputs[index]),
                Source::Scratch => self.scratch,
            };
            let (first, len) = place.bytes();
            base + first..base + first + len
        };
        launch.operands.iter().map(|operand| range(&operand.place)).collect()
    }

    fn dispatch(
        &self,
        device: &Device,
        compiled: &mut Compiled,
        launch: &Launch,
        parameters: Option<(&wgpu::Buffer, u64)>,
    ) -> Result<Dispatch, DeviceError> {
        // A range may be bound once, whatever names it goes by.
        let ranges = self.ranges(launch);
        let mut distinct: Vec<&Range<u64>> = vec![];
        let numbers: Vec<usize> = ranges
            .iter()
            .map(|range| {
                distinct.iter().position(|other| *other == range).unwrap_or_else(|| {
                    distinct.push(range);
                    distinct.len() - 1
                })
            })
            .collect();
        let pipeline = compiled.pipeline(device, launch, &numbers, distinct.len())?;
        let mut entries: Vec<wgpu::BindGroupEntry<'_>> = distinct
            .iter()
            .enumerate()
            .map(|(binding, range)| wgpu::BindGroupEntry {
                binding: binding as u32,
                resource: wgpu::BindingResource::Buffer(
                    self.arena.binding(range.start, range.end - range.start),
                ),
            })
            .collect();
        if let Some((buffer, offset)) = parameters {
            let size = wgpu::BufferSize::new(launch.words().len().next_multiple_of(16) as u64);
            entries.push(wgpu::BindGroupEntry {
                binding: distinct.len() as u32,
                resource: wgpu::BindingResource::Buffer(wgpu::BufferBinding {
                    buffer,
                    offset,
                    size,
                }),
            });
        }
        let layout = &compiled.layout(device, distinct.len()).0;
        let bindings = device.device.create_bind_group(&wgpu::BindGroupDescriptor {
            label: None,
            layout,
            entries: &entries,
        });
        let groups = launch.groups.end - launch.groups.start;
        let rows = groups.div_ceil(LARGEST_AXIS).max(1);
        let grid = [groups.div_ceil(rows) as u32, rows as u32];
        Ok(Dispatch { pipeline, bindings, grid, cost: launch.cost })
    }
}
