//! Training: recorded losses, and what settings of memory may and may not change.

mod golden;
mod knobs;
mod lora;
mod offload;
mod state;
mod text;
mod vit;
mod watch;
