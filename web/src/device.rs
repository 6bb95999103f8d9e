//! Opens WebGPU or the processor. For tests, a device goes away when it's told to.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use serde::Serialize;
use serde_json::{Value, json};
use tightrope_backend_cpu::Cpu;
use tightrope_backend_wgpu::{Options, Wgpu};
use tightrope_core::launch::Limits;
use tightrope_core::plan::Target;
use tightrope_core::{Backend, DeviceError, DeviceKind, Op, Phase, Plan, Reading, Type};

/// Which device to open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// WebGPU where there's an adapter, else the processor.
    Auto,
    /// WebGPU or none.
    WebGpu,
    /// The processor.
    Cpu,
}

impl Choice {
    /// The choice of this name.
    pub fn of_name(name: &str) -> Option<Self> {
        Some(match name {
            "auto" => Self::Auto,
            "webgpu" => Self::WebGpu,
            "cpu" => Self::Cpu,
            _ => return None,
        })
    }
}

/// Moments at which a test makes the device go away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// While bytes are written to it.
    Upload,
    /// While a plan is made ready.
    Compile,
    /// In the middle of the forward pass.
    Forward,
    /// In the middle of the backward pass.
    Backward,
    /// In the middle of the update.
    Update,
    /// While the loss is read.
    Readback,
    /// Before the next call.
    Idle,
    /// While a checkpoint is read.
    Save,
}

impl Moment {
    /// All of them.
    pub const ALL: [(&'static str, Self); 8] = [
        ("upload", Self::Upload),
        ("compile", Self::Compile),
        ("forward", Self::Forward),
        ("backward", Self::Backward),
        ("update", Self::Update),
        ("readback", Self::Readback),
        ("idle", Self::Idle),
        ("save", Self::Save),
    ];

    /// The moment of this name.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(known, _)| *known == name).map(|&(_, moment)| moment)
    }
}

/// The moment at which the device is to go away, shared with whoever says so. It happens once.
pub type Armed = Rc<Cell<Option<Moment>>>;

/// What was opened, for the page.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Description {
    /// "webgpu" or "cpu".
    pub device: &'static str,
    /// Name for people.
    pub name: String,
    /// Why it isn't WebGPU.
    pub reason: Option<String>,
    /// What the adapter grants; an empty object for the processor.
    pub limits: Value,
    /// Bytes that plans may take where the setup names no budget; `None` where only trying tells.
    pub budget: Option<u64>,
    /// Bytes that a preset should stay below, as far as the adapter lets one guess.
    pub comfortable: u64,
    /// FLOP/s of matrix products, where they were measured.
    pub rate: Option<f64>,
    /// Whether reading from it costs about nothing, so that every step's loss is read.
    pub reads_for_free: bool,
}

/// Opens devices: the first one, and those that take the place of a lost one.
pub trait Opener {
    /// Opens a device.
    fn open(&self) -> impl Future<Output = Result<(Box<dyn Backend>, Description), DeviceError>>;
}

/// Opens what this machine has.
pub struct Devices {
    /// What was asked for. Once WebGPU was found, it: a run doesn't change over to another device.
    choice: Cell<Choice>,
    /// Whether to ask only for what every adapter grants.
    default_limits: bool,
    /// When to go away.
    armed: Armed,
    /// What launches of the first adapter were made for. A device that takes its place is used alike, though
    /// it may measure another speed, so that plans and numbers stay.
    limits: RefCell<Option<Limits>>,
}

/// Memory of a 32-bit module is 4 GiB at most; copies of weights and checkpoints need room beside the plan.
const WASM_BUDGET: u64 = 2 << 30;
/// An adapter doesn't say how much memory it has. Buffers of a quarter of it are usual, and integrated ones
/// share it with everything else.
const BUFFERS: u64 = 4;

impl Opener for Devices {
    async fn open(&self) -> Result<(Box<dyn Backend>, Description), DeviceError> {
        let reason = match self.choice.get() {
            Choice::Cpu => "the processor was asked for".to_owned(),
            Choice::Auto | Choice::WebGpu => {
                let options = Options { default_limits: self.default_limits, ..Options::default() };
                match Wgpu::open(&options).await {
                    Ok(mut wgpu) => {
                        self.choice.set(Choice::WebGpu);
                        let first = self.limits.take().unwrap_or_else(|| wgpu.limits().clone());
                        wgpu.restrict(|limits| limits.clone_from(&first));
                        self.limits.replace(Some(first));
                        return Ok(self.wgpu(wgpu));
                    }
                    Err(error) if self.choice.get() == Choice::WebGpu => return Err(error),
                    Err(error) => error.to_string(),
                }
            }
        };
        let cpu = Cpu::new(0)?;
        let description = Description {
            device: "cpu",
            name: cpu.name(),
            reason: Some(reason),
            limits: json!({}),
            budget: cfg!(target_family = "wasm").then_some(WASM_BUDGET),
            comfortable: WASM_BUDGET,
            rate: None,
            reads_for_free: true,
        };
        Ok((self.losable(Kind::Cpu(cpu)), description))
    }
}

impl Devices {
    /// Opens `choice`, and goes away when it's `armed` to.
    pub fn new(choice: Choice, default_limits: bool, armed: Armed) -> Self {
        Self { choice: Cell::new(choice), default_limits, armed, limits: RefCell::default() }
    }

    fn wgpu(&self, wgpu: Wgpu) -> (Box<dyn Backend>, Description) {
        let found = wgpu.describe();
        let description = Description {
            device: "webgpu",
            name: wgpu.name(),
            reason: None,
            // A description is of plain fields.
            limits: serde_json::to_value(found).unwrap_or_default(),
            budget: None,
            comfortable: found.buffer_bytes.saturating_mul(BUFFERS),
            rate: Some(wgpu.rate()),
            reads_for_free: false,
        };
        (self.losable(Kind::Wgpu(Box::new(wgpu))), description)
    }

    fn losable(&self, device: Kind) -> Box<dyn Backend> {
        Box::new(Losable { device, armed: self.armed.clone(), lost: false, plan: None })
    }
}

enum Kind {
    Cpu(Cpu),
    Wgpu(Box<Wgpu>),
}

/// A device that can be made to go away.
struct Losable {
    device: Kind,
    armed: Armed,
    /// The processor only pretends.
    lost: bool,
    plan: Option<Arc<Plan>>,
}

impl Losable {
    fn inner(&self) -> &dyn Backend {
        match &self.device {
            Kind::Cpu(cpu) => cpu,
            Kind::Wgpu(wgpu) => &**wgpu,
        }
    }

    fn inner_mut(&mut self) -> &mut dyn Backend {
        match &mut self.device {
            Kind::Cpu(cpu) => cpu,
            Kind::Wgpu(wgpu) => &mut **wgpu,
        }
    }

    /// Goes away if this is the moment. Says so where the device itself doesn't.
    fn at(&mut self, moment: Moment) -> Result<(), DeviceError> {
        let due = self.armed.get().is_some_and(|armed| armed == moment || armed == Moment::Idle);
        if due {
            self.armed.set(None);
            match &self.device {
                Kind::Cpu(_) => self.lost = true,
                Kind::Wgpu(wgpu) => wgpu.lose(),
            }
        }
        self.check()
    }

    fn check(&self) -> Result<(), DeviceError> {
        if !self.lost {
            return Ok(());
        }
        let device = self.inner().name();
        Err(DeviceError::Lost { device, reason: "a test made it go away".to_owned() })
    }

    /// The step at which to go away in `steps`, where the armed moment lies in them: half-way through its
    /// phase.
    fn cut(&self, program: usize, steps: &Range<usize>) -> Option<(usize, Moment)> {
        let moment = self.armed.get()?;
        let phase = match moment {
            Moment::Forward => Phase::Forward,
            Moment::Backward => Phase::Backward,
            Moment::Update => Phase::Update,
            _ => return None,
        };
        let nodes = &self.plan.as_ref()?.graph.programs.get(program)?.nodes;
        // Evaluation and decoding are forward passes too; these moments are of training.
        let trains = |phase: Phase| matches!(phase, Phase::Backward | Phase::Update);
        if !nodes.iter().any(|node| trains(node.phase)) {
            return None;
        }
        let of_phase: Vec<usize> =
            steps.clone().filter(|&step| nodes[step].phase == phase).collect();
        of_phase.get(of_phase.len() / 2).map(|&step| (step, moment))
    }
}

impl Target for Losable {
    fn alignment(&self) -> u64 {
        self.inner().alignment()
    }

    fn workspace(&self, op: &Op, inputs: &[&Type], outputs: &[&Type]) -> u64 {
        self.inner().workspace(op, inputs, outputs)
    }

    fn in_place(&self, op: &Op) -> bool {
        self.inner().in_place(op)
    }

    fn parameters(&self, op: &Op, inputs: &[&Type], outputs: &[&Type]) -> u64 {
        self.inner().parameters(op, inputs, outputs)
    }

    fn staging(&self) -> u64 {
        self.inner().staging()
    }

    fn buffer_bytes(&self) -> u64 {
        self.inner().buffer_bytes()
    }

    fn operands(&self) -> usize {
        self.inner().operands()
    }
}

impl Backend for Losable {
    fn kind(&self) -> DeviceKind {
        self.inner().kind()
    }

    fn name(&self) -> String {
        self.inner().name()
    }

    fn prepare(&mut self, plan: Arc<Plan>) -> Result<(), DeviceError> {
        self.at(Moment::Compile)?;
        self.plan = Some(Arc::clone(&plan));
        self.inner_mut().prepare(plan)
    }

    fn allocated_bytes(&self) -> u64 {
        self.inner().allocated_bytes()
    }

    fn write(&mut self, at: u64, data: &[u8]) -> Result<(), DeviceError> {
        self.at(Moment::Upload)?;
        self.inner_mut().write(at, data)
    }

    fn run(&mut self, program: usize, steps: Range<usize>) -> Result<(), DeviceError> {
        self.check()?;
        let Some((cut, moment)) = self.cut(program, &steps) else {
            return self.inner_mut().run(program, steps);
        };
        self.inner_mut().run(program, steps.start..cut)?;
        self.at(moment)?;
        self.inner_mut().run(program, cut..steps.end)
    }

    fn read(&mut self, ranges: &[Range<u64>]) -> Reading<'_> {
        match self.at(Moment::Readback) {
            Ok(()) => self.inner_mut().read(ranges),
            Err(error) => Box::pin(std::future::ready(Err(error))),
        }
    }
}
