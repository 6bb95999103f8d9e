//! Opens WebGPU or the processor. For tests, a device goes away when it's told to.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use tightrope::backends::{Cpu, Wgpu};
use tightrope::core::plan::{PlannedAs, Target};
use tightrope::core::{Backend, Cancel, DeviceError, DeviceKind, Phase, Plan, Reading};
use tightrope::devices::{self, Adapter};
use tightrope::plan::Scope;
use tightrope::rates::Store;

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
#[derive(Clone, Debug, PartialEq)]
pub struct Description {
    /// "webgpu" or "cpu".
    pub device: &'static str,
    /// Name for people.
    pub name: String,
    /// Why it isn't WebGPU.
    pub reason: Option<String>,
    /// Bytes that plans may take where the setup names no budget; `None` where only trying tells.
    pub budget: Option<u64>,
    /// Bytes that a preset should stay below, as far as the adapter lets one guess.
    pub comfortable: u64,
    /// FLOP/s of matmuls, where they were measured.
    pub rate: Option<f64>,
    /// Whether reading from it costs about nothing, so that every step's loss is read.
    pub reads_for_free: bool,
}

impl Description {
    /// Fills in what a planner has to know of the device.
    pub fn fill(&self, scope: &mut Scope) {
        scope.budget = scope.budget.or(self.budget);
        if let Some(rate) = self.rate {
            scope.rates = Store::of_timed(rate);
        }
    }
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
    devices: RefCell<devices::Devices>,
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
            Choice::Auto | Choice::WebGpu => match self.gpu().await {
                Ok(wgpu) => {
                    self.choice.set(Choice::WebGpu);
                    return Ok(self.wgpu(wgpu));
                }
                Err(error) if self.choice.get() == Choice::WebGpu => return Err(error),
                Err(error) => error.to_string(),
            },
        };
        let cpu = Cpu::new(0)?;
        let description = Description {
            device: "cpu",
            name: cpu.name(),
            reason: Some(reason),
            budget: cfg!(target_family = "wasm").then_some(WASM_BUDGET),
            comfortable: WASM_BUDGET,
            rate: None,
            reads_for_free: true,
        };
        Ok((self.losable(cpu, None), description))
    }
}

impl Devices {
    /// Opens `choice`, and goes away when it's `armed` to.
    pub fn new(choice: Choice, default_limits: bool, armed: Armed) -> Self {
        Self { choice: Cell::new(choice), default_limits, armed, devices: RefCell::default() }
    }

    async fn gpu(&self) -> Result<Wgpu, DeviceError> {
        let options = Adapter { default_limits: self.default_limits, ..Adapter::default() };
        let mut devices = self.devices.take();
        let opened = devices.wgpu_async(&options).await;
        self.devices.replace(devices);
        opened
    }

    fn wgpu(&self, wgpu: Wgpu) -> (Box<dyn Backend>, Description) {
        let description = Description {
            device: "webgpu",
            name: wgpu.name(),
            reason: None,
            budget: None,
            comfortable: wgpu.describe().buffer_bytes.saturating_mul(BUFFERS),
            rate: Some(wgpu.rate()),
            reads_for_free: false,
        };
        let lose = Box::new(wgpu.loser());
        (self.losable(wgpu, Some(lose)), description)
    }

    fn losable(&self, device: impl Backend + 'static, lose: Option<Lose>) -> Box<dyn Backend> {
        let (device, armed) = (Box::new(device), self.armed.clone());
        Box::new(Losable { device, lose, armed, lost: false, plan: None })
    }
}

/// Makes a device go away.
type Lose = Box<dyn Fn()>;

/// A device that can be made to go away.
struct Losable {
    device: Box<dyn Backend>,
    /// The processor has none, and only pretends.
    lose: Option<Lose>,
    armed: Armed,
    lost: bool,
    plan: Option<Arc<Plan>>,
}

impl Losable {
    /// Goes away if this is the moment. Says so where the device itself doesn't.
    fn at(&mut self, moment: Moment) -> Result<(), DeviceError> {
        let due = self.armed.get().is_some_and(|armed| armed == moment || armed == Moment::Idle);
        if due {
            self.armed.set(None);
            match &self.lose {
                None => self.lost = true,
                Some(lose) => lose(),
            }
        }
        self.check()
    }

    fn check(&self) -> Result<(), DeviceError> {
        if !self.lost {
            return Ok(());
        }
        let device = self.device.name();
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

impl PlannedAs for Losable {
    fn planned_as(&self) -> &dyn Target {
        &*self.device
    }
}

impl Backend for Losable {
    fn kind(&self) -> DeviceKind {
        self.device.kind()
    }

    fn name(&self) -> String {
        self.device.name()
    }

    fn prepare(&mut self, plan: Arc<Plan>) -> Result<(), DeviceError> {
        self.at(Moment::Compile)?;
        self.plan = Some(Arc::clone(&plan));
        self.device.prepare(plan)
    }

    fn allocated_bytes(&self) -> u64 {
        self.device.allocated_bytes()
    }

    fn write(&mut self, at: u64, data: &[u8]) -> Result<(), DeviceError> {
        self.at(Moment::Upload)?;
        self.device.write(at, data)
    }

    fn run(
        &mut self,
        program: usize,
        steps: Range<usize>,
        cancel: &Cancel,
    ) -> Result<(), DeviceError> {
        self.check()?;
        let Some((cut, moment)) = self.cut(program, &steps) else {
            return self.device.run(program, steps, cancel);
        };
        self.device.run(program, steps.start..cut, cancel)?;
        self.at(moment)?;
        self.device.run(program, cut..steps.end, cancel)
    }

    fn read(&mut self, ranges: &[Range<u64>]) -> Reading<'_> {
        match self.at(Moment::Readback) {
            Ok(()) => self.device.read(ranges),
            Err(error) => Box::pin(std::future::ready(Err(error))),
        }
    }
}
