//! The class that the page's worker sees. Calls that wait hold the engine; a second one meanwhile is refused.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use serde::Serialize;
use serde_json::json;
use tightrope::nn::Sampling;
use tightrope::product;
use wasm_bindgen::prelude::*;

use crate::device::{Armed, Choice, Devices, Moment};
use crate::engine::{self, Stats};
use crate::error::{self, Error};
use crate::running::Running;

#[wasm_bindgen]
extern "C" {
    #[wasm_bindgen(js_namespace = console, js_name = error)]
    fn console_error(message: &str);

    /// A prompt, how to continue it, and what takes the pieces.
    pub type Generation;
    #[wasm_bindgen(method, getter)]
    fn prompt(this: &Generation) -> String;
    #[wasm_bindgen(method, getter)]
    fn tokens(this: &Generation) -> u32;
    #[wasm_bindgen(method, getter)]
    fn temperature(this: &Generation) -> f64;
    #[wasm_bindgen(method, getter, js_name = topK)]
    fn top_k(this: &Generation) -> u32;
    #[wasm_bindgen(method, getter, js_name = topP)]
    fn top_p(this: &Generation) -> f64;
    #[wasm_bindgen(method, getter)]
    fn seed(this: &Generation) -> f64;
    /// Takes a piece of text, and says whether to go on.
    #[wasm_bindgen(method)]
    fn piece(this: &Generation, text: &str) -> bool;
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

/// What is thrown: an `Error` with the message, by the name of its kind.
fn thrown(error: Error) -> JsValue {
    let thrown = js_sys::Error::new(&error.to_string());
    thrown.set_name(error.name());
    thrown.into()
}

fn text(value: &impl Serialize) -> Result<String, JsValue> {
    Ok(serde_json::to_string(value).map_err(JsError::from)?)
}

impl Engine {
    fn unavailable(&self) -> JsValue {
        let why = if self.closed.get() { "closed" } else { "busy: wait for the call before" };
        JsError::new(&format!("the engine is {why}")).into()
    }

    /// Does `work` with the engine taken out of its place.
    async fn with<T>(
        &self,
        work: impl AsyncFnOnce(&mut Inner) -> error::Result<T>,
    ) -> Result<T, JsValue> {
        let taken = self.inner.borrow_mut().take();
        let Some(mut inner) = taken else { return Err(self.unavailable()) };
        let result = work(&mut inner).await;
        if !self.closed.get() {
            self.inner.replace(Some(inner));
        }
        result.map_err(thrown)
    }

    /// Does `work` with the run.
    async fn with_run<T>(
        &self,
        work: impl AsyncFnOnce(&mut Running) -> error::Result<T>,
    ) -> Result<T, JsValue> {
        self.with(async |inner| inner.with_run(work).await).await
    }

    fn look<T>(&self, look: impl FnOnce(&Inner) -> error::Result<T>) -> Result<T, JsValue> {
        match &*self.inner.borrow() {
            Some(inner) => look(inner).map_err(thrown),
            None => Err(self.unavailable()),
        }
    }
}

#[wasm_bindgen]
impl Engine {
    /// Opens "webgpu", "cpu", or the better of them for "auto".
    pub async fn open(device: String, default_limits: bool) -> Result<Engine, JsValue> {
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
    pub fn info(&self) -> Result<String, JsValue> {
        self.look(|inner| Ok(inner.info()?.to_string()))
    }

    /// What training with this setup would take.
    pub fn plan(&self, setup: &str) -> Result<String, JsValue> {
        Ok(self.look(|inner| inner.plan(setup))?.to_string())
    }

    /// Names of the files that a run of this setup needs and that weren't given yet.
    pub fn needs(&self, setup: &str) -> Result<String, JsValue> {
        text(&self.look(|inner| inner.needs(setup))?)
    }

    /// Takes a file that setups need.
    pub fn give(&self, name: String, file: Vec<u8>) -> Result<(), JsValue> {
        let mut inner = self.inner.borrow_mut();
        let Some(inner) = &mut *inner else { return Err(self.unavailable()) };
        inner.give(name, file);
        Ok(())
    }

    /// The setup that continues a checkpoint.
    pub fn setup_of(&self, checkpoint: Vec<u8>) -> Result<String, JsValue> {
        text(&self.look(|inner| inner.setup_of(checkpoint))?)
    }

    /// Begins a run, or continues one from a checkpoint.
    pub async fn start(
        &self,
        setup: String,
        data: Option<Vec<u8>>,
        checkpoint: Option<Vec<u8>>,
    ) -> Result<String, JsValue> {
        text(&self.with(async |inner| inner.start(&setup, data, checkpoint).await).await?)
    }

    /// Trains. On WebGPU the records hold the last step's alone: reading a loss waits for the GPU. For every
    /// step's, call it with 1.
    pub async fn step(&self, count: u32) -> Result<String, JsValue> {
        text(&self.with(async |inner| inner.step(count.into()).await).await?)
    }

    /// Loss on held-out data.
    pub async fn evaluate(&self) -> Result<f64, JsValue> {
        self.with_run(Running::evaluate).await
    }

    /// What the model takes a drawing of rows of `width` places for, or null where nothing is drawn.
    pub async fn classify(&self, ink: Vec<u8>, width: u32) -> Result<String, JsValue> {
        let look =
            async |it: &mut Running| Ok(it.run.recognise_async(&ink, width as usize).await?);
        text(&self.with_run(look).await?)
    }

    /// Part of the held-out problems that are answered exactly, or of the held-out images that are told rightly.
    pub async fn accuracy(&self) -> Result<f64, JsValue> {
        self.with_run(Running::accuracy).await
    }

    /// What the model continues `prompt` with.
    pub async fn sample(
        &self,
        prompt: String,
        tokens: u32,
        temperature: f64,
        seed: f64,
    ) -> Result<String, JsValue> {
        let (tokens, seed) = (tokens as usize, seed as u64);
        self.with_run(async |run| run.sample(&prompt, tokens, temperature, seed).await).await
    }

    /// Hands on what the model continues a prompt with, piece by piece.
    pub async fn generate(&self, generation: Generation) -> Result<(), JsValue> {
        let sampling = Sampling {
            temperature: generation.temperature(),
            top_k: generation.top_k() as usize,
            top_p: generation.top_p(),
            seed: generation.seed() as u64,
            draw: 0,
        };
        let (prompt, most) = (generation.prompt(), generation.tokens() as usize);
        let mut show = |piece: &str| generation.piece(piece);
        self.with_run(async |run| run.generate(&prompt, most, sampling, &mut show).await).await
    }

    /// The run as one file.
    pub async fn checkpoint(&self) -> Result<Vec<u8>, JsValue> {
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
    pub fn lose_device(&self, at: &str) -> Result<(), JsValue> {
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
    ) -> Result<Products, JsValue> {
        let timed = product::time(&a, &b, extent as usize, runs).await.map_err(JsError::from)?;
        Ok(Products { ms: timed.ms, product: timed.product })
    }

    /// Frees the device and the run.
    pub fn close(&self) {
        self.closed.set(true);
        self.inner.borrow_mut().take();
    }
}
