//! Training: recorded losses, and what settings of memory may and may not change.

mod adafactor;
mod bert;
mod buckets;
mod cancel;
mod context;
mod cut;
mod devices;
mod distillation;
mod dpo;
mod eager;
mod golden;
mod inference;
mod knobs;
mod looks;
mod lora;
mod narrow;
mod offload;
mod packing;
mod ranks;
mod ranks_consumed;
mod ranks_offload;
mod shares;
mod state;
mod text;
mod vit;
mod watch;
