//! Whole weights: those of a model, or those that adapters are beside.

use tightrope_data::{Base, SafeTensors, Weights};
use tightrope_nn::{Import, Model, Parameter, initial_values};

use super::grown::Grown;
use super::{Places, Source};
use crate::error::Result;

/// Where whole weights are.
pub(crate) enum Frozen<'a> {
    /// In the model itself.
    Own(&'a Source),
    /// In the model that a run of adapters began with.
    Elsewhere(Box<Source>),
    /// Nowhere: they are drawn by this seed.
    Seed(u64),
}

/// Whole weights, open.
pub(crate) enum Open<'a> {
    Checkpoint(Import, &'a SafeTensors, Grown),
    Files(Import, Weights, Grown),
    Seed(u64),
}

impl Source {
    /// The whole weights of the model, which may be where `places` says.
    ///
    /// # Errors
    /// Weights that aren't where they were.
    pub(crate) fn frozen(&self, places: &Places) -> Result<Frozen<'_>> {
        Ok(match self.base() {
            None => Frozen::Own(self),
            Some(Base::Seed(seed)) => Frozen::Seed(*seed),
            Some(Base::Given { .. }) => return Err(self.given_elsewhere()),
            Some(Base::Model { path, fingerprint }) => {
                let found = self.find_base(path, fingerprint, places.model.as_deref())?;
                Frozen::Elsewhere(Box::new(found))
            }
        })
    }
}

impl Frozen<'_> {
    /// Opens them for `model`, which is what they are of.
    ///
    /// # Errors
    /// Weights that are missing, of another model, or in a broken file.
    pub(crate) fn open(&self, model: &dyn Model, places: &Places) -> anyhow::Result<Open<'_>> {
        let source = match self {
            Self::Own(source) => source,
            Self::Elsewhere(source) => &**source,
            Self::Seed(seed) => return Ok(Open::Seed(*seed)),
        };
        // A head that a run of adapters made anew lies with them.
        let lies_beside = matches!(self, Self::Elsewhere(_)) || source.head_is_beside;
        let matched = |names: Vec<&str>| match lies_beside {
            true => Import::starting(model, names),
            false => Import::new(model, names),
        };
        let grown = source.grown(model, places)?;
        Ok(match &source.checkpoint {
            Some(checkpoint) => {
                let weights = &checkpoint.model;
                Open::Checkpoint(matched(weights.names().collect())?, weights, grown)
            }
            None => {
                let weights = source.open_weights()?;
                Open::Files(matched(weights.names().collect())?, weights, grown)
            }
        })
    }
}

impl Open<'_> {
    /// The values of one of the model's parameters: zeros of one that lies with adapters alone.
    ///
    /// # Errors
    /// Values that are of another shape, or not finite.
    pub(crate) fn read(&self, parameter: &Parameter) -> anyhow::Result<Vec<f32>> {
        if let Self::Checkpoint(import, ..) | Self::Files(import, ..) = self
            && !import.has(parameter)
        {
            return Ok(vec![0.0; parameter.elements()]);
        }
        Ok(match self {
            Self::Seed(seed) => initial_values(parameter, *seed),
            Self::Checkpoint(import, weights, grown) => import.read(parameter, &mut |name| {
                Ok(grown.extend(name, weights.require(name)?.to_values()?))
            })?,
            Self::Files(import, weights, grown) => import.read(parameter, &mut |name| {
                Ok(grown.extend(name, weights.require(name)?.to_values()?))
            })?,
        })
    }
}
