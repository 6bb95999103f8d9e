//! `Session`: a plan, its buffers and the step counter.

use std::sync::Arc;

use crate::backend::{Backend, DeviceError};
use crate::graph::Tensor;
use crate::ops::Rule;
use crate::plan::Plan;
use crate::types::DType;

/// A plan on a device.
pub struct Session {
    plan: Arc<Plan>,
    backend: Box<dyn Backend>,
}

/// What went wrong in a session.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SessionError {
    /// The device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// A program or tensor isn't in the plan.
    #[error(transparent)]
    Graph(#[from] crate::Error),
    /// Bytes of the wrong length were written to a tensor.
    #[error("`{tensor}` takes {expected} bytes, got {got}")]
    Length {
        /// Name of the tensor.
        tensor: String,
        /// Bytes it has.
        expected: usize,
        /// Bytes given.
        got: usize,
    },
    /// No program of the plan uses the tensor, so it has no bytes.
    #[error("`{0}` has no place in the plan: no program uses it")]
    NoPlace(String),
}

/// The first op of a replay whose output isn't finite.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NonFinite {
    /// Family of the op.
    pub op: &'static str,
    /// Name of the output.
    pub tensor: String,
    /// Index of the first such element.
    pub element: usize,
}

impl Session {
    /// Allocates and readies `plan` on `backend`.
    ///
    /// # Errors
    /// As [`Backend::prepare`].
    pub fn new(plan: Plan, mut backend: Box<dyn Backend>) -> Result<Self, DeviceError> {
        let plan = Arc::new(plan);
        backend.prepare(Arc::clone(&plan))?;
        Ok(Self { plan, backend })
    }

    /// The plan that is replayed.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The device.
    pub fn backend(&self) -> &dyn Backend {
        &*self.backend
    }

    /// Gives the device back, for another plan.
    pub fn into_backend(self) -> Box<dyn Backend> {
        self.backend
    }

    fn range(&self, tensor: Tensor) -> Result<(u64, u64), SessionError> {
        let name = || self.plan.graph.info(tensor).name.clone();
        self.plan.range(tensor).ok_or_else(|| SessionError::NoPlace(name()))
    }

    /// Sets a tensor's bytes, little-endian elements in row-major order.
    ///
    /// # Errors
    /// [`SessionError::Length`] and those of the device.
    pub fn write(&mut self, tensor: Tensor, bytes: &[u8]) -> Result<(), SessionError> {
        let (offset, expected) = self.range(tensor)?;
        if bytes.len() as u64 != expected {
            let tensor = self.plan.graph.info(tensor).name.clone();
            let (expected, got) = (expected as usize, bytes.len());
            return Err(SessionError::Length { tensor, expected, got });
        }
        Ok(self.backend.write(offset, bytes)?)
    }

    /// Sets a tensor's elements, rounded to its dtype.
    ///
    /// # Errors
    /// As [`Session::write`].
    pub fn write_values(&mut self, tensor: Tensor, values: &[f32]) -> Result<(), SessionError> {
        let dtype = self.plan.graph.dtype(tensor);
        let mut bytes = vec![0; values.len() * dtype.size()];
        if dtype == DType::F32 {
            for (element, value) in bytes.chunks_exact_mut(4).zip(values) {
                element.copy_from_slice(&value.to_le_bytes());
            }
        } else {
            for (element, &value) in bytes.chunks_exact_mut(dtype.size()).zip(values) {
                dtype.write(element, value.into());
            }
        }
        self.write(tensor, &bytes)
    }

    /// Sets a tensor of token ids or positions.
    ///
    /// # Errors
    /// As [`Session::write`].
    pub fn write_ids(&mut self, tensor: Tensor, ids: &[i32]) -> Result<(), SessionError> {
        let bytes: Vec<u8> = ids.iter().flat_map(|id| id.to_le_bytes()).collect();
        self.write(tensor, &bytes)
    }

    /// Replays a program.
    ///
    /// # Errors
    /// [`crate::Error::Unknown`] and those of the device.
    pub fn run(&mut self, program: &str) -> Result<(), SessionError> {
        let index = self.plan.graph.program(program)?;
        let steps = self.plan.programs[index].steps.len();
        Ok(self.backend.run(index, 0..steps)?)
    }

    /// A tensor's bytes. The only function that waits for the device.
    ///
    /// # Errors
    /// [`SessionError::NoPlace`] and those of the device.
    pub async fn read(&mut self, tensor: Tensor) -> Result<Vec<u8>, SessionError> {
        let (offset, bytes) = self.range(tensor)?;
        let range = offset..offset + bytes;
        Ok(self.backend.read(std::slice::from_ref(&range)).await?)
    }

    /// The bytes of `tensors`, one after the other, in one wait for the device.
    ///
    /// # Errors
    /// As [`Session::read`].
    pub async fn read_all(&mut self, tensors: &[Tensor]) -> Result<Vec<u8>, SessionError> {
        let range = |&tensor| self.range(tensor).map(|(offset, bytes)| offset..offset + bytes);
        let ranges: Vec<_> = tensors.iter().map(range).collect::<Result<_, _>>()?;
        Ok(self.backend.read(&ranges).await?)
    }

    /// The first element of each of `tensors`, as f32, in one wait for the device.
    ///
    /// # Errors
    /// As [`Session::read`].
    pub async fn read_scalars(&mut self, tensors: &[Tensor]) -> Result<Vec<f32>, SessionError> {
        let dtypes: Vec<DType> = tensors.iter().map(|&t| self.plan.graph.dtype(t)).collect();
        let mut ranges = vec![];
        for (&tensor, dtype) in tensors.iter().zip(&dtypes) {
            let (offset, _) = self.range(tensor)?;
            ranges.push(offset..offset + dtype.size() as u64);
        }
        let bytes = self.backend.read(&ranges).await?;
        let mut rest = &bytes[..];
        let mut first = |dtype: &DType| {
            let (element, after) = rest.split_at(dtype.size());
            rest = after;
            dtype.read(element) as f32
        };
        Ok(dtypes.iter().map(&mut first).collect())
    }

    /// A tensor's elements as f32.
    ///
    /// # Errors
    /// As [`Session::read`].
    pub async fn read_values(&mut self, tensor: Tensor) -> Result<Vec<f32>, SessionError> {
        let dtype = self.plan.graph.dtype(tensor);
        let bytes = self.read(tensor).await?;
        Ok(bytes.chunks_exact(dtype.size()).map(|element| dtype.read(element) as f32).collect())
    }

    /// Replays a program op by op and names the first whose output isn't finite; `None` where all are.
    /// Slow: for explaining a run that went wrong.
    ///
    /// # Errors
    /// As [`Session::run`] and [`Session::read`].
    pub async fn first_non_finite(
        &mut self,
        program: &str,
    ) -> Result<Option<NonFinite>, SessionError> {
        let index = self.plan.graph.program(program)?;
        let plan = Arc::clone(&self.plan);
        for (step, node) in plan.graph.programs[index].nodes.iter().enumerate() {
            self.backend.run(index, step..step + 1)?;
            for &tensor in node.outputs.iter().filter(|&&t| plan.graph.dtype(t).is_float()) {
                let values = self.read_values(tensor).await?;
                if let Some(element) = values.iter().position(|value| !value.is_finite()) {
                    let tensor = plan.graph.info(tensor).name.clone();
                    return Ok(Some(NonFinite { op: node.op.name(), tensor, element }));
                }
            }
        }
        Ok(None)
    }
}
