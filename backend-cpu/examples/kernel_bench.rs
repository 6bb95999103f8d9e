//! Times the CPU kernels other than matmuls: op, shape, ms (the best of several runs), and
//! GFLOP/s or GB/s.
//!
//! `cargo run --release -p tightrope-backend-cpu --example kernel_bench -- [THREADS] [FILTER]`

use half::bf16;
use std::time::Instant;
use tightrope_backend_cpu::arena::Arena;
use tightrope_backend_cpu::fast::attention::{self, Cache, Dims, Masked, Place, Saved, Scores};
use tightrope_backend_cpu::fast::norm::{self, ParameterGrads};
use tightrope_backend_cpu::fast::rows::{self, Places, Rotary};
use tightrope_backend_cpu::fast::vmath::{self, Storage};
use tightrope_backend_cpu::isa::Isa;
use tightrope_backend_cpu::tape::Tape;
use tightrope_core::expr::{Binary, Unary, constant, input};
use tightrope_core::ops::{Map, Mask, Rope};
use tightrope_core::{DType, Type};

/// What one call does, for the last column.
enum Work {
    Flop(f64),
    Bytes(f64),
}

struct Bench {
    filter: String,
    isa: Isa,
}

impl Bench {
    /// Runs `f` for half a second at least and prints its line.
    fn line(&self, op: &str, shape: &str, work: Work, mut f: impl FnMut()) {
        if !op.contains(&self.filter) {
            return;
        }
        let start = Instant::now();
        let mut best = f64::INFINITY;
        let mut runs = 0;
        while runs < 3 || start.elapsed().as_secs_f64() < 0.5 {
            let before = Instant::now();
            f();
            best = best.min(before.elapsed().as_secs_f64());
            runs += 1;
        }
        let (rate, unit) = match work {
            Work::Flop(flop) => (flop / best / 1e9, "GFLOP/s"),
            Work::Bytes(bytes) => (bytes / best / 1e9, "GB/s"),
        };
        println!("{op:<32}{shape:<34}{:>10.3} ms{rate:>9.1} {unit}", best * 1e3);
    }
}

fn values<T: Storage>(n: usize, size: f32) -> Vec<T> {
    (0..n).map(|i| T::from_f32(((i * 7919 + 13) % 1009) as f32 / 504.5 * size - size)).collect()
}

fn attention<T: Storage>(bench: &Bench, name: &str, threads: usize) {
    for (batch, positions, heads, kv_heads, head_dim) in
        [(16, 256, 6, 6, 64), (4, 1024, 12, 12, 64), (1, 2048, 16, 4, 128)]
    {
        let dims = Dims { batch, positions, heads, kv_heads, head_dim };
        let shape = format!("B={batch} T={positions} H={heads}/{kv_heads} D={head_dim}");
        let scores = Scores::scaled(1.0 / (head_dim as f32).sqrt());
        let qkv = values::<T>(dims.qkv_len(), 1.0);
        let mut out = values::<T>(dims.out_len(), 1.0);
        let mut lse = vec![0.0; dims.lse_len()];
        let dout = values::<T>(dims.out_len(), 0.5);
        let mut dqkv = qkv.clone();
        for (mask, which) in [(Mask::CAUSAL, "causal"), (Mask::NONE, "full")] {
            let masked = Masked { mask, ..Masked::CAUSAL };
            let pairs: usize = (0..positions).map(|query| mask.keys(query, positions).len()).sum();
            // Two matmuls forward, five backward.
            let matmul = (2 * batch * heads * pairs * head_dim) as f64;
            let mut scratch =
                vec![0.0; attention::forward_scratch::<T>(bench.isa.level(), &dims, threads)];
            let op = format!("attention {name} {which}");
            bench.line(&op, &shape, Work::Flop(2.0 * matmul), || {
                attention::forward(
                    bench.isa,
                    &dims,
                    scores,
                    &masked,
                    &qkv,
                    &mut out,
                    &mut lse,
                    &mut scratch,
                );
            });
            let mut scratch =
                vec![0.0; attention::backward_scratch::<T>(bench.isa.level(), &dims, threads)];
            let op = format!("attention grad {name} {which}");
            bench.line(&op, &shape, Work::Flop(5.0 * matmul), || {
                let saved = Saved { qkv: &qkv, out: &out, lse: &lse };
                attention::backward(
                    bench.isa,
                    &dims,
                    scores,
                    &masked,
                    saved,
                    &dout,
                    &mut dqkv,
                    &mut scratch,
                );
            });
        }
    }
}

fn decode<T: Storage>(bench: &Bench, name: &str, threads: usize) {
    let dims = Dims { batch: 1, positions: 1024, heads: 12, kv_heads: 12, head_dim: 64 };
    let cache_len = dims.positions * dims.kv_heads * dims.head_dim;
    let (keys, values_) = (values::<T>(cache_len, 1.0), values::<T>(cache_len, 1.0));
    let q = values::<T>(dims.channels(), 1.0);
    let mut out = q.clone();
    let mut scratch = vec![0.0; attention::decode_scratch(&dims, threads)];
    let bytes = (2 * cache_len * size_of::<T>()) as f64;
    bench.line(&format!("decode {name}"), "B=1 T=1024 H=12 D=64", Work::Bytes(bytes), || {
        let cache = Cache { keys: &keys, values: &values_ };
        let place = Place { position: 1023, window: None };
        attention::decode(
            bench.isa,
            &dims,
            Scores::scaled(0.125),
            place,
            &q,
            cache,
            &mut out,
            &mut scratch,
        );
    });
}

type OnSlice = fn(Isa, &[f32], &mut [f32]);

fn functions(bench: &Bench) {
    // Small enough for the second-level cache: what is timed is the arithmetic, on one thread.
    let n = 32 * 1024;
    let x = values::<f32>(n, 8.0);
    let positive: Vec<f32> = x.iter().map(|x| x.abs() + 0.1).collect();
    let mut y = vec![0.0; n];
    let work = || Work::Bytes((8 * n) as f64);
    let all: [(&str, OnSlice, &[f32]); 7] = [
        ("exp", vmath::exp_slice, &x),
        ("ln", vmath::ln_slice, &positive),
        ("tanh", vmath::tanh_slice, &x),
        ("sigmoid", vmath::sigmoid_slice, &x),
        ("erf", vmath::erf_slice, &x),
        ("sin", vmath::sin_slice, &x),
        ("cos", vmath::cos_slice, &x),
    ];
    for (name, function, from) in all {
        bench.line(&format!("vmath {name}"), "32768, one thread", work(), || {
            function(bench.isa, from, &mut y);
        });
    }
    bench.line("vmath pow", "32768, one thread", work(), || {
        vmath::pow_slice(bench.isa, &positive, &x, &mut y)
    });
    let mut half = vec![bf16::ZERO; n];
    bench.line("vmath f32 to bf16", "32768, one thread", Work::Bytes((6 * n) as f64), || {
        vmath::store_slice(bench.isa, &x, &mut half);
    });
    bench.line("vmath bf16 to f32", "32768, one thread", Work::Bytes((6 * n) as f64), || {
        vmath::load_slice(bench.isa, &half, &mut y);
    });
}

fn norms<T: Storage>(bench: &Bench, name: &str) {
    let (r, c) = (4096, 768);
    let (x, dy) = (values::<T>(r * c, 1.0), values::<T>(r * c, 0.5));
    let (weight, bias) = (values::<f32>(c, 1.0), values::<f32>(c, 0.1));
    let (mut y, mut mean, mut rstd) = (x.clone(), vec![0.0; r], vec![0.0; r]);
    let bytes = |tensors: usize| Work::Bytes((tensors * r * c * size_of::<T>()) as f64);
    let shape = format!("R={r} C={c}");
    bench.line(&format!("layer norm {name}"), &shape, bytes(2), || {
        norm::layer_norm(bench.isa, &x, &weight, Some(&bias), 1e-5, &mut y, &mut mean, &mut rstd);
    });
    let (mut dweight, mut dbias) = (vec![0.0; c], vec![0.0; c]);
    let mut scratch = vec![0.0; norm::norm_backward_scratch(r, c)];
    bench.line(&format!("layer norm grad {name}"), &shape, bytes(3), || {
        let bias = Some(&mut dbias[..]);
        let grads = Some(ParameterGrads { weight: &mut dweight, bias, accumulate: true });
        norm::layer_norm_backward(
            bench.isa,
            &x,
            &weight,
            &mean,
            &rstd,
            Some(&dy),
            &mut y,
            grads,
            &mut scratch,
        );
    });
    bench.line(&format!("rms norm {name}"), &shape, bytes(2), || {
        norm::rms_norm(bench.isa, &x, &weight, 1e-5, &mut y, &mut rstd);
    });
    bench.line(&format!("rms norm grad {name}"), &shape, bytes(3), || {
        let grads = Some(ParameterGrads { weight: &mut dweight, bias: None, accumulate: true });
        norm::rms_norm_backward(
            bench.isa,
            &x,
            &weight,
            &rstd,
            Some(&dy),
            &mut y,
            grads,
            &mut scratch,
        );
    });
}

fn matrices<T: Storage>(bench: &Bench, name: &str, threads: usize) -> Result<(), rows::IdError> {
    let (r, vocab, padded) = (512, 50_257, 50_304);
    let mut logits = values::<T>(r * padded, 4.0);
    let targets: Vec<i32> = (0..r as i32).map(|i| i * 97 % vocab as i32).collect();
    let mut loss = vec![0.0; r];
    let bytes = |tensors: usize, n: usize| Work::Bytes((tensors * n * size_of::<T>()) as f64);
    let shape = format!("R={r} V={vocab} of {padded}");
    rows::cross_entropy(bench.isa, &logits, &targets, vocab, &mut loss, None)?;
    bench.line(&format!("cross-entropy {name}"), &shape, bytes(1, r * padded), || {
        // The targets were accepted above.
        let _ = rows::cross_entropy(bench.isa, &logits, &targets, vocab, &mut loss, None);
    });
    bench.line(&format!("cross-entropy in place {name}"), &shape, bytes(2, r * padded), || {
        let (logits, loss) = (&mut logits, &mut loss);
        let _ = rows::cross_entropy_in_place(bench.isa, logits, &targets, vocab, 1.0, loss, None);
    });

    let (r, c) = (4096, 768);
    let x = values::<T>(r * c, 1.0);
    let mut sums = vec![0.0; c];
    let mut scratch = vec![0.0; rows::column_sums_scratch(r, c)];
    let mut squares = vec![0.0; (r * c).div_ceil(4096)];
    let shape = format!("R={r} C={c}");
    bench.line(&format!("column sums {name}"), &shape, bytes(1, r * c), || {
        rows::column_sums(bench.isa, &x, &mut sums, true, &mut scratch);
    });
    bench.line(&format!("sum of squares {name}"), &shape, bytes(1, r * c), || {
        rows::block_square_sums(bench.isa, &x, 4096, &mut squares);
    });
    let ids: Vec<i32> = (0..r as i32).map(|i| i * i % 8192).collect();
    let table = values::<T>(8192 * c, 1.0);
    let (mut y, mut dtable) = (x.clone(), vec![0.0; 8192 * c]);
    rows::gather(bench.isa, &table, &ids, c, &mut y)?;
    bench.line(&format!("gather {name}"), &shape, bytes(2, r * c), || {
        let _ = rows::gather(bench.isa, &table, &ids, c, &mut y);
    });
    let moved = Work::Bytes((r * c * (size_of::<T>() + 8)) as f64);
    bench.line(&format!("scatter-add {name}"), &shape, moved, || {
        let _ = rows::scatter_add(bench.isa, &x, &ids, c, &mut dtable);
    });
    let op = Rope::new(12, 64, 1e4);
    let rotary = Rotary { positions: 256, heads: 18, places: Places::From(0), op: &op };
    let mut qkv = values::<T>(r * 18 * 64, 1.0);
    let mut scratch = vec![0.0; rows::rope_scratch(64, threads)];
    let moved = bytes(2, r * 12 * 64);
    bench.line(&format!("rope in place {name}"), "R=4096 heads=12 of 18 D=64", moved, || {
        rows::rope_in_place(bench.isa, &rotary, &mut qkv, &mut scratch);
    });
    Ok(())
}

/// AdamW over weights in f32, and over those in bf16 with the rest of their bits.
fn updates(bench: &Bench, elements: usize) {
    let scalar = Type::new(DType::F32, [1]);
    for halves in [false, true] {
        let weight = if halves { input(5).binary(Binary::JoinHalves, input(6)) } else { input(5) };
        let first = 6 + usize::from(halves);
        let (gradient, m, v) = (input(first) * input(1), input(first + 1), input(first + 2));
        let mix = |before, beta: f64, new| constant(beta) * before + constant(1.0 - beta) * new;
        let m = mix(m, 0.9, gradient.clone());
        let v = mix(v, 0.95, gradient.clone() * gradient);
        let root = v.clone().sqrt() * input(4) + constant(1e-8);
        let kept = constant(1.0) - input(2) * constant(0.1);
        let after = weight * kept - input(2) * input(3) * m.clone() / root;
        let mut new = match halves {
            false => vec![(5, after)],
            true => {
                vec![(5, after.clone().unary(Unary::HighHalf)), (6, after.unary(Unary::LowHalf))]
            }
        };
        new.extend([(first + 1, m), (first + 2, v)]);
        let over: Vec<usize> = new.iter().map(|&(over, _)| over).collect();
        let formulas = new.into_iter().map(|(over, new)| input(0).select(new, input(over)));
        let own: &[DType] = match halves {
            false => &[DType::F32; 4],
            true => &[DType::BF16, DType::I16, DType::F32, DType::F32, DType::F32],
        };
        let types = own.iter().map(|&dtype| Type::new(dtype, [elements]));
        let types: Vec<Type> = std::iter::repeat_n(scalar.clone(), 5).chain(types).collect();
        let dtypes = over.iter().map(|&at| types[at].dtype).collect();
        let map = Map {
            shared: 5,
            in_place: over.iter().copied().enumerate().collect(),
            ..Map::several(formulas.collect(), dtypes)
        };
        let tape = Tape::compile(&map, &types.iter().collect::<Vec<_>>())
            .expect("there are enough registers");
        let bytes: usize = types.iter().map(|ty| ty.bytes().next_multiple_of(256)).sum();
        let offsets = types.iter().scan(0, |end, ty| {
            let start = *end;
            *end += ty.bytes().next_multiple_of(256) as u64;
            Some(start)
        });
        let arena = Arena::new(bytes as u64).expect("memory");
        // SAFETY: nothing else uses the arena.
        unsafe { arena.scratch(0, bytes as u64) }.fill(0x3c);
        let views: Vec<_> = types.iter().zip(offsets).map(|(ty, at)| arena.view(at, ty)).collect();
        let outputs: Vec<_> = over.iter().map(|&at| views[at]).collect();
        let read: usize = types.iter().map(Type::bytes).sum();
        let written: usize = over.iter().map(|&at| types[at].bytes()).sum();
        let name = if halves { "AdamW bf16 + i16" } else { "AdamW f32" };
        bench.line(name, &format!("{elements}"), Work::Bytes((read + written) as f64), || {
            // SAFETY: nothing else uses the tensors.
            unsafe { tape.run(bench.isa, &views, &outputs) };
        });
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let threads = match arguments.next() {
        Some(threads) => threads.parse()?,
        None => std::thread::available_parallelism()?.get(),
    };
    let bench = Bench { filter: arguments.next().unwrap_or_default(), isa: Isa::chosen()? };
    println!("{} on {threads} threads", bench.isa.name());
    rayon::ThreadPoolBuilder::new().num_threads(threads).build()?.install(|| {
        attention::<f32>(&bench, "f32", threads);
        attention::<bf16>(&bench, "bf16", threads);
        decode::<f32>(&bench, "f32", threads);
        decode::<bf16>(&bench, "bf16", threads);
        norms::<f32>(&bench, "f32");
        norms::<bf16>(&bench, "bf16");
        matrices::<f32>(&bench, "f32", threads)?;
        matrices::<bf16>(&bench, "bf16", threads)?;
        functions(&bench);
        updates(&bench, 1 << 12);
        updates(&bench, 62_000_000);
        Ok::<(), rows::IdError>(())
    })?;
    Ok(())
}
