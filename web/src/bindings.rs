//! The class that the page's worker sees. Calls that wait hold the engine; a second one meanwhile is refused.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use serde::Serialize;
use serde_json::json;
use wasm_bindgen::prelude::*;

use crate::device::{Armed, Choice, Devices, Moment};
use crate::engine::{self, Stats};
use crate::error::{self, Error};
use crate::product;

#[wasm_bindgen]
extern "C" {
    #[wasm_bindgen(js_namespace = console, js_name = error)]
    fn console_error(message: &str);
}

type Inner = engine::Engine<Devices>;

/// Plans and trains on one device.
#[wasm_bindgen]
pub struct Engine {
    /// Taken out while a call is under way.
    inner: RefCell<Option<Inner>>,
    closed: Cell<bool>,
    armed: Armed,
    stats: Rc<Stats>,
}

/// What timing products came to.
#[wasm_bindgen]
pub struct Products {
    /// Milliseconds of one.
    #[wasm_bindgen(readonly)]
    pub ms: f64,
    product: Vec<f32>,
}

#[wasm_bindgen]
impl Products {
    /// The product.
    #[wasm_bindgen(getter)]
    pub fn product(&self) -> Vec<f32> {
        self.product.clone()
    }
}

/// What is thrown: an `Error` with the message.
fn thrown(error: Error) -> JsError {
    JsError::new(&error.to_string())
}

fn text(value: &impl Serialize) -> Result<String, JsError> {
    serde_json::to_string(value).map_err(|error| JsError::new(&error.to_string()))
}

impl Engine {
    fn unavailable(&self) -> JsError {
        JsError::new(if self.closed.get() {
            "the engine is closed"
        } else {
            "the engine is busy: wait for the call before"
        })
    }

    /// Does `work` with the engine taken out of its place.
    async fn with<T>(
        &self,
        work: impl AsyncFnOnce(&mut Inner) -> error::Result<T>,
    ) -> Result<T, JsError> {
        let taken = self.inner.borrow_mut().take();
        let Some(mut inner) = taken else { return Err(self.unavailable()) };
        let result = work(&mut inner).await;
        if !self.closed.get() {
            self.inner.replace(Some(inner));
        }
        result.map_err(thrown)
    }

    fn look<T>(&self, look: impl FnOnce(&Inner) -> error::Result<T>) -> Result<T, JsError> {
        match &*self.inner.borrow() {
            Some(inner) => look(inner).map_err(thrown),
            None => Err(self.unavailable()),
        }
    }
}

#[wasm_bindgen]
impl Engine {
    /// Opens "webgpu", "cpu", or the better of them for "auto".
    pub async fn open(device: String, default_limits: bool) -> Result<Engine, JsError> {
        std::panic::set_hook(Box::new(|panic| console_error(&panic.to_string())));
        let choice = Choice::of_name(&device)
            .ok_or_else(|| JsError::new(&format!("no device `{device}`: auto, webgpu or cpu")))?;
        let armed = Armed::default();
        let devices = Devices::new(choice, default_limits, Rc::clone(&armed));
        let inner = Inner::open(devices, Rc::clone(&armed)).await.map_err(thrown)?;
        let stats = inner.stats();
        Ok(Self { inner: RefCell::new(Some(inner)), closed: Cell::new(false), armed, stats })
    }

    /// The device and the presets that fit it.
    pub fn info(&self) -> Result<String, JsError> {
        self.look(|inner| Ok(inner.info()?.to_string()))
    }

    /// What training with this setup would take.
    pub fn plan(&self, setup: &str) -> Result<String, JsError> {
        Ok(self.look(|inner| inner.plan(setup))?.to_string())
    }

    /// The setup that continues a checkpoint.
    pub fn setup_of(&self, checkpoint: Vec<u8>) -> Result<String, JsError> {
        text(&self.look(|inner| inner.setup_of(checkpoint))?)
    }

    /// Begins a run, or continues one from a checkpoint.
    pub async fn start(
        &self,
        setup: String,
        data: Option<Vec<u8>>,
        checkpoint: Option<Vec<u8>>,
    ) -> Result<String, JsError> {
        text(&self.with(async |inner| inner.start(&setup, data, checkpoint).await).await?)
    }

    /// Trains. On WebGPU the records hold the last step's alone: reading a loss waits for the GPU. For every
    /// step's, call it with 1.
    pub async fn step(&self, count: u32) -> Result<String, JsError> {
        text(&self.with(async |inner| inner.step(count.into()).await).await?)
    }

    /// Loss on held-out data.
    pub async fn evaluate(&self) -> Result<f64, JsError> {
        self.with(Inner::evaluate).await
    }

    /// Part of the held-out problems that are answered exactly.
    pub async fn accuracy(&self) -> Result<f64, JsError> {
        self.with(Inner::accuracy).await
    }

    /// What the model continues `prompt` with.
    pub async fn sample(
        &self,
        prompt: String,
        tokens: u32,
        temperature: f64,
        seed: f64,
    ) -> Result<String, JsError> {
        let tokens = tokens as usize;
        self.with(async |inner| inner.sample(&prompt, tokens, temperature, seed as u64).await).await
    }

    /// The run as one file.
    pub async fn checkpoint(&self) -> Result<Vec<u8>, JsError> {
        self.with(Inner::checkpoint).await
    }

    /// Bytes in use.
    pub fn memory(&self) -> String {
        /// Bytes of a page of a module's memory.
        const PAGE: u64 = 1 << 16;
        let Stats { predicted_bytes, allocated_bytes, host_copy_bytes, .. } = &*self.stats;
        json!({
            "predicted_bytes": predicted_bytes.get(),
            "allocated_bytes": allocated_bytes.get(),
            "wasm_heap_bytes": core::arch::wasm32::memory_size::<0>() as u64 * PAGE,
            "host_copy_bytes": host_copy_bytes.get(),
        })
        .to_string()
    }

    /// For tests: makes the device go away at this moment, once.
    pub fn lose_device(&self, at: &str) -> Result<(), JsError> {
        let moment = Moment::of_name(at).ok_or_else(|| JsError::new("no such moment"))?;
        self.armed.set(Some(moment));
        Ok(())
    }

    /// How often a device took the place of a lost one.
    pub fn recoveries(&self) -> u32 {
        self.stats.recoveries.get()
    }

    /// Times products of two square f32 matrices on the browser's GPU.
    pub async fn bench_matmul(
        &self,
        a: Vec<f32>,
        b: Vec<f32>,
        extent: u32,
        runs: u32,
    ) -> Result<Products, JsError> {
        let timed = product::time(&a, &b, extent as usize, runs).await?;
        Ok(Products { ms: timed.ms, product: timed.product })
    }

    /// Frees the device and the run.
    pub fn close(&self) {
        self.closed.set(true);
        self.inner.borrow_mut().take();
    }
}
