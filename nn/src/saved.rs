//! What a trainer keeps of itself: the tensors of a checkpoint, and a copy of the device's memory.

use std::ops::Range;

use serde_json::{Value, json};
use tightrope_core::{DType, Graph, SessionError, Tensor, Type};

use crate::handles::Handles;
use crate::import::Get;
use crate::init::initial_values;
use crate::programs::Planned;
use crate::trainer::{Of, PIECE, TrainError, Trainer};
use crate::transpose::transpose;
use crate::weights::Weights;
use crate::{Error, Import, LearningRate, LossScale, Parameter, State, StateBits};

/// Name of the number of updates among a checkpoint's optimizer state.
pub const UPDATES: &str = "updates";

/// Key of f16 training's loss scale in a checkpoint's schedule.
const LOSS_SCALE: &str = "loss_scale";

/// A tensor of a checkpoint, by its name in the file.
#[derive(Clone, Debug, PartialEq)]
pub struct SavedTensor {
    /// Name in the file.
    pub name: String,
    /// Dtype and extents in the file. Values of another dtype than f32 are f32s that it holds exactly.
    pub ty: Type,
    pub(crate) place: Place,
}

impl SavedTensor {
    /// True if steps don't change it.
    pub fn is_frozen(&self) -> bool {
        matches!(self.place, Place::Frozen { .. })
    }
}

/// Where a device has it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Place {
    /// Of a parameter that steps change.
    Trained {
        parameter: usize,
        part: usize,
    },
    /// Of a parameter of the model that is frozen.
    Frozen {
        parameter: usize,
        part: usize,
    },
    State(usize),
    /// The number of updates.
    Updates(Tensor),
}

/// A copy of everything that steps change, bit for bit: weights, their remainders, optimizer state, the number of updates and the loss
/// scale.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot(Vec<u8>);

impl Snapshot {
    /// An empty one with memory for `bytes`; `None` where the host hasn't as much.
    pub(crate) fn with_room(bytes: u64) -> Option<Self> {
        let mut room = vec![];
        room.try_reserve_exact(usize::try_from(bytes).ok()?).ok()?;
        Some(Self(room))
    }

    /// Bytes of host memory that it takes.
    pub fn bytes(&self) -> u64 {
        self.0.capacity() as u64
    }
}

/// Bytes of a snapshot that are read at once: what the device stages is as large at most.
const READ_BYTES: usize = 16 << 20;

impl Trainer {
    /// The weights of a checkpoint: all parts of the model's parameters, under their names there, or of its adapters
    /// where it has any.
    pub fn saved_weights(&self) -> Vec<SavedTensor> {
        saved_weights(&self.weights, &self.handles)
    }

    /// The optimizer state of a checkpoint.
    pub fn saved_states(&self) -> Vec<SavedTensor> {
        saved_states(&self.weights, &self.handles, &self.session.plan().graph)
    }

    /// The values of one of these tensors.
    ///
    /// # Errors
    /// Those of the device.
    pub async fn saved_values(&mut self, saved: &SavedTensor) -> Result<Vec<f32>, TrainError> {
        let elements = saved.ty.elements();
        let mut values = self.saved_values_from(saved, 0).await?;
        values.reserve_exact(elements - values.len());
        while values.len() < elements {
            let more = self.saved_values_from(saved, values.len()).await?;
            values.extend(more);
        }
        Ok(values)
    }

    /// Values of one of these tensors from element `first` on: so many that the host's memory doesn't notice.
    ///
    /// # Errors
    /// Those of the device.
    pub async fn saved_values_from(
        &mut self,
        saved: &SavedTensor,
        first: usize,
    ) -> Result<Vec<f32>, TrainError> {
        let elements = saved.ty.elements();
        let piece = first..elements.min(first + PIECE);
        let (description, part) = match saved.place {
            Place::Trained { parameter, part } => (&self.parameters()[parameter], part),
            Place::Frozen { parameter, part } => (&self.weights.parameters()[parameter], part),
            Place::State(index) => {
                let state = self.handles.states()[index].tensor;
                return Ok(self.session.read_values_of(state, &[piece]).await?);
            }
            Place::Updates(updates) => {
                return Ok(self.session.read_values_of(updates, &[piece]).await?);
            }
        };
        let (columns, part) = (description.columns(), description.parts[part].clone());
        let (start, rows) = (part.rows.start * columns, part.rows.len());
        if !part.transposed {
            let elements = start + piece.start..start + piece.end;
            return self.held_of(saved.place, &[elements], Of::All).await;
        }
        // Rows of the file are columns of the device's.
        let left = first / rows.max(1);
        let right = columns.min(left + (PIECE / rows.max(1)).max(1));
        let of_row = |row: usize| start + row * columns + left..start + row * columns + right;
        let held: Vec<Range<usize>> = (0..rows).map(of_row).collect();
        let held = self.held_of(saved.place, &held, Of::All).await?;
        let mut values = vec![0.0; held.len()];
        transpose(&held, right - left, &mut values, rows);
        values.drain(..first - left * rows);
        Ok(values)
    }

    /// These elements of a tensor as the device holds it.
    pub(crate) async fn held_of(
        &mut self,
        place: Place,
        elements: &[Range<usize>],
        of: Of,
    ) -> Result<Vec<f32>, TrainError> {
        let tensor = match place {
            Place::Trained { parameter, .. } => {
                return self.weight_of(parameter, elements, of).await;
            }
            Place::Frozen { parameter, .. } => self.weights.tensors()[parameter],
            Place::State(index) => self.handles.states()[index].tensor,
            Place::Updates(updates) => updates,
        };
        self.values_of(tensor, elements, of).await
    }

    /// Reads what a checkpoint holds along with a rank that writes one, which then has this rank's shards: in the order of
    /// [`Trainer::saved_weights`] and [`Trainer::saved_states`].
    ///
    /// # Errors
    /// Those of the device and of other ranks.
    #[cfg(not(target_family = "wasm"))]
    pub async fn read_along(&mut self) -> Result<(), TrainError> {
        for saved in self.saved_weights().into_iter().chain(self.saved_states()) {
            let mut read = 0;
            while read < saved.ty.elements() {
                read += self.saved_values_from(&saved, read).await?.len();
            }
        }
        Ok(())
    }

    /// Sets every weight from a file with tensors of these names, and its adapters, if any, to their initial values.
    ///
    /// # Errors
    /// As [`Import::new`] and [`Import::read`], and those of the device.
    pub fn load_weights<S: AsRef<str>>(
        &mut self,
        names: impl IntoIterator<Item = S>,
        get: &mut Get<'_>,
    ) -> Result<(), TrainError> {
        let import = Import::new(&*self.config().model, names)?;
        self.load(&import, get)
    }

    /// As [`Trainer::load_weights`], to start from: what the file lacks and the model [makes anew](crate::Model::made_anew)
    /// begins as it would without a file.
    ///
    /// # Errors
    /// As [`Trainer::load_weights`].
    pub fn start_from<S: AsRef<str>>(
        &mut self,
        names: impl IntoIterator<Item = S>,
        get: &mut Get<'_>,
    ) -> Result<(), TrainError> {
        let import = Import::starting(&*self.config().model, names)?;
        self.load(&import, get)
    }

    fn load(&mut self, import: &Import, get: &mut Get<'_>) -> Result<(), TrainError> {
        let seed = self.config().seed;
        if self.weights.has_adapters() {
            self.initialise_adapters()?;
        }
        for index in 0..self.weights.parameters().len() {
            let parameter = &self.weights.parameters()[index];
            let values = match import.has(parameter) {
                true => import.read(parameter, get)?,
                false => initial_values(parameter, seed),
            };
            match self.weights.trained_at(index) {
                Some(parameter) => self.set_weight(parameter, &values)?,
                None => self.set_frozen(index, &values)?,
            }
            self.set_first_lengths(index, &values)?;
        }
        Ok(())
    }

    /// Sets every weight of the model's [teacher](crate::Model::teacher) from a file with tensors of these names.
    ///
    /// # Errors
    /// As [`Trainer::load_weights`], and a model without a teacher.
    pub fn load_teacher<S: AsRef<str>>(
        &mut self,
        names: impl IntoIterator<Item = S>,
        get: &mut Get<'_>,
    ) -> Result<(), TrainError> {
        let model = self.config().model.clone();
        let held = self.handles.step.as_ref().and_then(|step| step.teacher.clone());
        let (Some(teacher), Some(weights)) = (model.teacher(), held) else {
            let problem = "the model learns of no teacher".to_owned();
            return Err(TrainError::Saved(Error::Setting { key: "train.teacher", problem }));
        };
        let import = Import::new(teacher, names)?;
        for (parameter, &tensor) in weights.parameters().iter().zip(weights.tensors()) {
            let values = import.read(parameter, get)?;
            for (piece, values) in values.chunks(PIECE).enumerate() {
                self.session.write_values_from(tensor, piece * PIECE, values)?;
            }
        }
        Ok(())
    }

    /// Sets every adapter from a file with tensors of these names.
    ///
    /// # Errors
    /// Adapters of other layers or shapes, and those of the device.
    pub fn load_adapters<S: AsRef<str>>(
        &mut self,
        names: impl IntoIterator<Item = S>,
        get: &mut Get<'_>,
    ) -> Result<(), TrainError> {
        let import = Import::of(self.parameters(), names)?;
        for index in 0..self.parameters().len() {
            let values = import.read(&self.parameters()[index], get)?;
            self.set_weight(index, &values)?;
        }
        Ok(())
    }

    /// Sets all optimizer state from a file with tensors of these names.
    ///
    /// # Errors
    /// State of another optimizer or model, and those of the device.
    pub fn load_states<S: AsRef<str>>(
        &mut self,
        names: impl IntoIterator<Item = S>,
        get: &mut Get<'_>,
    ) -> Result<(), TrainError> {
        let own = self.saved_states();
        let names: Vec<S> = names.into_iter().collect();
        let found = StateBits::of_names(names.iter().map(AsRef::as_ref));
        let expected = StateBits::of_names(own.iter().map(|state| state.name.as_str()));
        if found != expected {
            let [found, expected] = [found, expected].map(u32::from);
            return Err(TrainError::Saved(Error::Setting {
                key: "optimizer_bits",
                problem: format!(
                    "is {expected}, and the checkpoint's optimizer state has {found} bits"
                ),
            }));
        }
        for name in names {
            if !own.iter().any(|state| state.name == name.as_ref()) {
                return Err(unexpected_state(name.as_ref()));
            }
        }
        self.set_states(own, get)
    }

    /// As [`Trainer::load_states`], from a run that froze other weights. State of weights that are frozen now is left out, and state
    /// of weights that were frozen stays as it is: 0 in a new trainer.
    ///
    /// # Errors
    /// As [`Trainer::load_states`].
    pub fn load_states_of_both<S: AsRef<str>>(
        &mut self,
        names: impl IntoIterator<Item = S>,
        get: &mut Get<'_>,
    ) -> Result<(), TrainError> {
        let names: Vec<S> = names.into_iter().collect();
        let is_of = |name: &str, parameter: &Parameter| {
            name.strip_prefix(&parameter.name).is_some_and(|rest| rest.starts_with('.'))
        };
        let was_trained =
            |parameter: &Parameter| names.iter().any(|name| is_of(name.as_ref(), parameter));
        let own = self.saved_states();
        let frozen: Vec<&Parameter> = self
            .weights
            .parameters()
            .iter()
            .enumerate()
            .filter_map(|(index, it)| self.weights.trained_at(index).is_none().then_some(it))
            .collect();
        for name in names.iter().map(AsRef::as_ref) {
            let is_known = own.iter().any(|state| state.name == name)
                || frozen.iter().any(|parameter| is_of(name, parameter));
            if !is_known {
                return Err(unexpected_state(name));
            }
        }
        let kept = own.into_iter().filter(|saved| match saved.place {
            Place::State(index) => {
                was_trained(&self.parameters()[self.handles.states()[index].parameter])
            }
            _ => true,
        });
        let kept = kept.collect();
        self.set_states(kept, get)
    }

    fn set_states(
        &mut self,
        states: Vec<SavedTensor>,
        get: &mut Get<'_>,
    ) -> Result<(), TrainError> {
        for SavedTensor { name, ty, place } in states {
            let expected = ty.shape;
            let read = get(&name).map_err(|source| Error::Read { name: name.clone(), source });
            let (found, values) = read?;
            if found != expected {
                return Err(TrainError::Saved(Error::TensorShape { name, found, expected }));
            }
            match place {
                Place::State(index) => self.set_state(index, &values)?,
                Place::Updates(updates) => self.session.write_values(updates, &values)?,
                Place::Trained { .. } | Place::Frozen { .. } => {}
            }
        }
        Ok(())
    }

    /// The learning rate's schedule as a checkpoint keeps it, with the loss scale of f16 training.
    ///
    /// # Errors
    /// Those of the device.
    pub async fn saved_schedule(&mut self, rate: &LearningRate) -> Result<Value, TrainError> {
        let LearningRate { schedule, lr, min_lr, warmup, steps } = rate;
        let mut value = json!({
            "schedule": schedule, "lr": lr, "min_lr": min_lr, "warmup": warmup, "steps": steps
        });
        if let Some(scale) = self.loss_scale().await? {
            value[LOSS_SCALE] = json!(scale);
        }
        Ok(value)
    }

    /// Sets the loss scale that [`Trainer::saved_schedule`] put there, if any.
    ///
    /// # Errors
    /// A scale that isn't one, and those of the device.
    pub fn load_schedule(&mut self, schedule: &Value) -> Result<(), TrainError> {
        let Some(scale) = schedule.get(LOSS_SCALE) else { return Ok(()) };
        let broken = |source: serde_json::Error| Error::Read {
            name: LOSS_SCALE.to_owned(),
            source: source.into(),
        };
        let scale = <[f32; 2] as serde::Deserialize>::deserialize(scale).map_err(broken)?;
        self.set_loss_scale(scale)
    }

    /// The tensors of a [`Snapshot`], with their bytes.
    fn changed_by_steps(&self) -> Vec<(Tensor, usize)> {
        changed_by_steps(&self.weights, &self.handles, &self.session.plan().graph)
    }

    /// Bytes of a [`Snapshot`].
    pub fn snapshot_bytes(&self) -> u64 {
        total(&self.changed_by_steps()) as u64
    }

    /// Copies everything that steps change into `snapshot`, whose memory is used again. `false` where the
    /// host has no memory for it; where a read fails, what it held before is lost.
    ///
    /// # Errors
    /// Those of the device.
    pub async fn snapshot(&mut self, snapshot: &mut Snapshot) -> Result<bool, TrainError> {
        let tensors = self.changed_by_steps();
        snapshot.0.clear();
        if snapshot.0.try_reserve_exact(total(&tensors)).is_err() {
            return Ok(false);
        }
        let mut rest = &tensors[..];
        while !rest.is_empty() {
            let (mut count, mut bytes) = (1, rest[0].1);
            while count < rest.len() && bytes + rest[count].1 <= READ_BYTES {
                bytes += rest[count].1;
                count += 1;
            }
            let (piece, after) = rest.split_at(count);
            let piece: Vec<Tensor> = piece.iter().map(|&(tensor, _)| tensor).collect();
            snapshot.0.extend_from_slice(&self.session.read_all(&piece).await?);
            rest = after;
        }
        Ok(true)
    }

    /// Sets everything that steps change to what `snapshot` holds, which is one of the same model, precision
    /// and optimizer.
    ///
    /// # Errors
    /// [`SessionError::Length`] for another model's, and those of the device.
    pub fn restore(&mut self, snapshot: &Snapshot) -> Result<(), TrainError> {
        let mut rest = &snapshot.0[..];
        for (tensor, expected) in self.changed_by_steps() {
            let Some((bytes, after)) = rest.split_at_checked(expected) else {
                let tensor = self.session.plan().graph.info(tensor).name.clone();
                return Err(SessionError::Length { tensor, expected, got: rest.len() }.into());
            };
            self.session.write(tensor, bytes)?;
            rest = after;
        }
        Ok(())
    }
}

impl Planned {
    /// Bytes of the tensors of a checkpoint of this run: weights, or those of its adapters, and optimizer state.
    pub fn checkpoint_bytes(&self) -> u64 {
        let weights = saved_weights(&self.weights, &self.handles);
        let states = saved_states(&self.weights, &self.handles, &self.plan.graph);
        weights.iter().chain(&states).map(|saved| saved.ty.bytes() as u64).sum()
    }

    /// All of them: there are no other ranks in a browser.
    #[cfg(target_family = "wasm")]
    pub fn given_bytes(&self) -> u64 {
        self.checkpoint_bytes()
    }

    /// Bytes of the host's memory that a [`Snapshot`] of this run takes.
    pub fn snapshot_bytes(&self) -> u64 {
        total(&changed_by_steps(&self.weights, &self.handles, &self.plan.graph)) as u64
    }
}

/// The weights of a checkpoint.
pub(crate) fn saved_weights(weights: &Weights, handles: &Handles) -> Vec<SavedTensor> {
    let saved = |description: &Parameter, place: &dyn Fn(usize) -> Place| {
        let parts = description.parts.iter().enumerate();
        let saved = parts.map(|(part, which)| {
            let place = place(part);
            let trained = matches!(place, Place::Trained { .. });
            let dtype = saved_dtype(weights, handles, trained);
            let ty = Type::new(dtype, description.part_shape(which));
            SavedTensor { name: which.name.clone(), ty, place }
        });
        saved.collect::<Vec<_>>()
    };
    if weights.has_adapters() {
        let adapters = weights.trained().0.iter().enumerate();
        return adapters
            .flat_map(|(parameter, description)| {
                saved(description, &|part| Place::Trained { parameter, part })
            })
            .collect();
    }
    let parameters = weights.parameters().iter().enumerate();
    parameters
        .flat_map(|(index, description)| match weights.trained_at(index) {
            Some(parameter) => saved(description, &|part| Place::Trained { parameter, part }),
            None => saved(description, &|part| Place::Frozen { parameter: index, part }),
        })
        .collect()
}

/// The optimizer state of a checkpoint.
pub(crate) fn saved_states(
    weights: &Weights,
    handles: &Handles,
    graph: &Graph,
) -> Vec<SavedTensor> {
    let parameters = weights.trained().0;
    let saved = |(index, state): (usize, &State)| SavedTensor {
        name: format!("{}.{}", parameters[state.parameter].name, state.name()),
        ty: graph.whole(state.tensor).clone(),
        place: Place::State(index),
    };
    let updates = handles.updates().map(|tensor| SavedTensor {
        name: UPDATES.to_owned(),
        ty: graph.ty(tensor).clone(),
        place: Place::Updates(tensor),
    });
    handles.states().iter().enumerate().map(saved).chain(updates).collect()
}

/// Storage of a weight in a checkpoint: as it's held where steps change it and it has no master; else f32.
fn saved_dtype(weights: &Weights, handles: &Handles, trained: bool) -> DType {
    let masterless = trained && handles.remainders().is_empty();
    if masterless { weights.precision().dtype() } else { DType::F32 }
}

fn unexpected_state(name: &str) -> TrainError {
    TrainError::Saved(Error::UnexpectedTensor {
        name: name.to_owned(),
        problem: "is state that this optimizer doesn't keep",
        nearest: None,
    })
}

/// Everything that steps change, with its bytes.
fn changed_by_steps(weights: &Weights, handles: &Handles, graph: &Graph) -> Vec<(Tensor, usize)> {
    let state = handles.states().iter().map(|state| state.tensor).chain(handles.updates());
    let scale = handles.loss_scale().into_iter();
    let scale = scale.flat_map(|LossScale { scale, steps, used }| [scale, steps, used]);
    let trained = weights.trained().1.iter().chain(handles.remainders()).copied();
    let tensors = trained.chain(state).chain(scale);
    tensors.map(|tensor| (tensor, graph.ty(tensor).bytes())).collect()
}

fn total(tensors: &[(Tensor, usize)]) -> usize {
    tensors.iter().map(|&(_, bytes)| bytes).sum()
}
