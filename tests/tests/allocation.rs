//! What a backend allocates is what the plan says: nothing of size is allocated besides the arena, neither
//! when a plan is prepared nor while it's replayed.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use pollster::block_on;
use tightrope_backend_cpu::Cpu;
use tightrope_nn::{Batch, BuildOptions, Planned, Precision, Trainer, TrainerConfig};

/// The system's allocator, watched.
struct Watched;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);
static LARGEST: AtomicUsize = AtomicUsize::new(0);

fn taken(bytes: usize) {
    let live = LIVE.fetch_add(bytes, Ordering::Relaxed) + bytes;
    PEAK.fetch_max(live, Ordering::Relaxed);
    LARGEST.fetch_max(bytes, Ordering::Relaxed);
}

// SAFETY: every call goes to the system's allocator as it came.
unsafe impl GlobalAlloc for Watched {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        taken(layout.size());
        // SAFETY: passed on.
        unsafe { System.alloc(layout) }
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        taken(layout.size());
        // SAFETY: passed on.
        unsafe { System.alloc_zeroed(layout) }
    }
    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: passed on.
        unsafe { System.dealloc(start, layout) }
    }
    unsafe fn realloc(&self, start: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        taken(size);
        // SAFETY: passed on.
        unsafe { System.realloc(start, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Watched = Watched;

/// Live bytes now; peak and largest allocation count from here on.
fn reset() -> usize {
    let live = LIVE.load(Ordering::Relaxed);
    PEAK.store(live, Ordering::Relaxed);
    LARGEST.store(0, Ordering::Relaxed);
    live
}

/// Bookkeeping of a plan and a pool: far below any tensor that matters.
const BOOKKEEPING: usize = 1 << 20;

#[test]
fn the_arena_is_the_only_allocation_of_size() {
    for precision in [Precision::F32, Precision::BF16] {
        let mut model = tightrope_nn::preset("small").expect("a preset");
        model.vocab = 5000;
        let config = TrainerConfig {
            precision,
            batch: 8,
            micro_batch: 4,
            build: BuildOptions { loss_chunk: 256, ..BuildOptions::default() },
            seed: 0,
            decode: 8,
            ..TrainerConfig::new(model.build(model.context).expect("a model"))
        };
        let cpu = Cpu::new(2).expect("threads");
        let planned = Planned::new(&config, &cpu).expect("a plan");
        let arena = planned.plan.arena_bytes as usize;
        assert!(arena > 16 * BOOKKEEPING, "the arena is large enough to be told from the rest");
        let before = reset();
        let mut trainer = Trainer::new(planned, Box::new(cpu)).expect("memory");
        let prepared = PEAK.load(Ordering::Relaxed) - before;
        assert!(prepared >= arena, "{prepared} bytes for an arena of {arena}");
        assert!(prepared < arena + BOOKKEEPING, "{prepared} bytes for an arena of {arena}");
        // What the backend says it took is what was asked of the allocator at once, to the byte.
        let largest = LARGEST.load(Ordering::Relaxed);
        assert_eq!((trainer.allocated_bytes() as usize, largest), (arena, arena));
        trainer.initialise().expect("weights");
        let ids = vec![1; config.tokens()];
        let batch = Batch::text(&ids, &ids);
        for step in 0..3 {
            let before = reset();
            trainer.step(step, 1e-3, &batch).expect("a step");
            block_on(trainer.outcome()).expect("an outcome");
            let grown = PEAK.load(Ordering::Relaxed) - before;
            assert!(grown < BOOKKEEPING / 4, "step {step} took {grown} bytes");
            assert!(LARGEST.load(Ordering::Relaxed) < BOOKKEEPING / 8, "step {step}");
        }
    }
}
