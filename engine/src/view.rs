//! What is said of a plan: for people, for machines, as a page, as a trace.
//!
//! | module | does |
//! |---|---|
//! | [`step`] | the step as data: what every op takes, and every tensor's place, life and readers |
//! | [`brief`] | what is about to be trained, a line each |
//! | [`summary`] | where the bytes go and what was chosen, as text and as JSON |
//! | [`advice`] | what a plan could be instead: what more bytes would buy and fewer would cost |
//! | [`outlook`] | the time of a run that takes more than a day, and changes that shorten it |
//! | [`ranks`] | what several ranks hold and send |
//! | [`scale`] | the same step on more and more GPUs |
//! | [`curve`] | its efficiency, as SVG |
//! | [`sweep`] | the plans from the fastest to the smallest |
//! | [`techniques`] | what each memory technique saves and costs |
//! | [`layers`] | what each block takes: bytes by class, seconds by phase |
//! | [`map`] | tensors by place and life, as SVG |
//! | [`page`] | all of it as one page of HTML that needs nothing else |
//! | [`names`] | what ops and phases are called |
//! | [`why`] | why the peak is where it is, in a line |
//! | [`trace`] | the step as trace events, which ui.perfetto.dev opens |
//!
//! ```
//! use tightrope::devices::Devices;
//! use tightrope::recipe::Step;
//! use tightrope::settings::Settings;
//! use tightrope::view::step::programs;
//! use tightrope::view::summary::Summary;
//!
//! let mut said = Settings::default();
//! for words in ["model.preset=tiny", "run.device=cpu"] {
//!     said.read_argument(words)?;
//! }
//! let step = Step::of(&said)?;
//! let device = Devices::default().open(&step.device)?;
//! let planned = step.plan(&*device)?;
//!
//! let known = step.scope.rates.known(&*device, planned.config().precision, 1);
//! let summary = Summary::new(&planned, &*device, known, None, 0.0);
//! println!("{}", summary.text(100));
//! assert_eq!(summary.json()["peak_bytes"], planned.plan.peak_bytes());
//!
//! // Every op, and every tensor's offset, first and last step.
//! let programs = programs(&planned.plan, planned.config().accumulation(), &known.rates);
//! assert_eq!(programs[0].ops.len(), planned.plan.programs[0].steps.len());
//! # Ok::<(), tightrope::Error>(())
//! ```

pub mod advice;
mod alive;
pub mod brief;
mod chart;
mod columns;
pub mod curve;
pub mod layers;
pub mod map;
pub mod names;
pub mod outlook;
pub mod page;
pub mod ranks;
pub mod scale;
pub mod step;
pub mod summary;
pub mod sweep;
pub mod techniques;
pub mod trace;
pub mod why;

#[cfg(all(test, feature = "cpu", not(target_family = "wasm")))]
mod tests;
