//! Ops along sequences: attention and rotary positions.

use tightrope_core::Type;
use tightrope_core::ops::{Attention, Rope};

use super::Scratch;
use crate::arena::View;
use crate::fast::attention::{self, Cache, Dims, Masked, Place, Scores};
use crate::fast::rows::{self, Places, Rotary};
use crate::fast::vmath::Storage;

/// Sizes of an attention over whole sequences.
pub fn dims(op: &Attention, qkv: &Type) -> Dims {
    Dims {
        batch: qkv.shape[0],
        positions: qkv.shape[1],
        heads: op.heads,
        kv_heads: op.kv_heads,
        head_dim: op.head_dim,
    }
}

fn scores(op: &Attention) -> Scores {
    Scores { scale: op.scale as f32, cap: op.cap.map(|cap| cap as f32) }
}

/// The mask of `op` with what it reads, of which the first is input `own`.
///
/// # Safety
/// As [`super::run`].
unsafe fn masked<'a>(op: &Attention, own: usize, inputs: &[View<'a>]) -> Masked<'a> {
    let mut extra = inputs[own..].iter();
    // SAFETY: passed on.
    unsafe {
        let documents = if op.mask.documents { extra.next() } else { None };
        let key = op.dropout.and_then(|dropout| Some((dropout, extra.next()?)));
        Masked {
            mask: op.mask,
            documents: documents.map(|view| view.slice::<i32>()),
            dropout: key.map(|(dropout, key)| {
                let words = key.slice::<u32>();
                (dropout, std::array::from_fn(|word| words[word]))
            }),
        }
    }
}

/// # Safety
/// As [`super::run`].
pub unsafe fn attend<T: Storage>(
    op: &Attention,
    inputs: &[View<'_>],
    outputs: &[View<'_>],
    scratch: Scratch<'_>,
) -> bool {
    let (isa, dims) = (scratch.isa, dims(op, inputs[0].ty()));
    // SAFETY: passed on.
    let (qkv, out, lse) =
        unsafe { (inputs[0].slice::<T>(), outputs[0].slice_mut::<T>(), outputs[1].slice_mut()) };
    // SAFETY: passed on.
    let masked = unsafe { masked(op, 1, inputs) };
    attention::forward(isa, &dims, scores(op), &masked, qkv, out, lse, scratch.floats());
    true
}

/// # Safety
/// As [`super::run`].
pub unsafe fn attend_back<T: Storage>(
    op: &Attention,
    inputs: &[View<'_>],
    outputs: &[View<'_>],
    scratch: Scratch<'_>,
) -> bool {
    let (isa, dims) = (scratch.isa, dims(op, inputs[0].ty()));
    // SAFETY: passed on.
    let (saved, dout, dqkv) = unsafe {
        let [qkv, out, lse] = [inputs[0], inputs[1], inputs[2]];
        let saved =
            attention::Saved { qkv: qkv.slice::<T>(), out: out.slice::<T>(), lse: lse.slice() };
        (saved, inputs[3].slice::<T>(), outputs[0].slice_mut::<T>())
    };
    // SAFETY: passed on.
    let masked = unsafe { masked(op, 4, inputs) };
    attention::backward(isa, &dims, scores(op), &masked, saved, dout, dqkv, scratch.floats());
    true
}

fn cache_dims(op: &Attention, qkv: &Type, keys: &Type) -> Dims {
    Dims { positions: keys.shape[1], ..dims(op, qkv) }
}

/// Scratch of a decoding step in f32s, and how many of them hold the queries.
pub fn cached_scratch(op: &Attention, qkv: &Type, keys: &Type, threads: usize) -> (usize, usize) {
    let queries = qkv.rows() * op.heads * op.head_dim;
    // Queries are stored in the tensor's type, which takes at most four bytes.
    (queries + attention::decode_scratch(&cache_dims(op, qkv, keys), threads), queries)
}

/// # Safety
/// As [`super::run`].
pub unsafe fn attend_cached<T: Storage>(
    op: &Attention,
    inputs: &[View<'_>],
    outputs: &[View<'_>],
    scratch: Scratch<'_>,
) -> bool {
    let (qkv_type, keys_type) = (inputs[0].ty(), inputs[1].ty());
    let (isa, dims) = (scratch.isa, cache_dims(op, qkv_type, keys_type));
    let (_, queries) = cached_scratch(op, qkv_type, keys_type, scratch.threads);
    // SAFETY: the caches are this op's outputs, read through them alone.
    let (qkv, position, out, keys, values) = unsafe {
        (
            inputs[0].slice::<T>(),
            inputs[3].slice::<i32>()[0] as usize,
            outputs[0].slice_mut::<T>(),
            outputs[1].slice_mut::<T>(),
            outputs[2].slice_mut::<T>(),
        )
    };
    let (held, scratch) = scratch.floats().split_at_mut(queries);
    let held: &mut [T] = &mut bytemuck::cast_slice_mut(held)[..queries];
    let (new, columns) = (qkv_type.shape[1], op.kv_heads * op.head_dim);
    let channels = op.heads * op.head_dim;
    for (row, packed) in qkv.chunks_exact(op.packed()).enumerate() {
        let (b, s) = (row / new, row % new);
        let at = (b * dims.positions + position + s) * columns;
        held[row * channels..][..channels].copy_from_slice(&packed[..channels]);
        keys[at..at + columns].copy_from_slice(&packed[channels..channels + columns]);
        values[at..at + columns].copy_from_slice(&packed[channels + columns..]);
    }
    let cache = Cache { keys: &*keys, values: &*values };
    let place = Place { position, window: op.mask.window };
    attention::decode(isa, &dims, scores(op), place, held, cache, out, scratch);
    true
}

/// # Safety
/// As [`super::run`]; the output may take over the input's storage.
pub unsafe fn rotate<T: Storage>(
    op: &Rope,
    inputs: &[View<'_>],
    outputs: &[View<'_>],
    scratch: Scratch<'_>,
) -> bool {
    let ty = inputs[0].ty();
    if !ty.last().is_multiple_of(op.head_dim) {
        return false;
    }
    // SAFETY: passed on; in place there is only the output's slice.
    let (positions, y) = unsafe { (inputs[1].slice::<i32>(), outputs[0].slice_mut::<T>()) };
    let rotary = Rotary {
        positions: ty.shape[1],
        heads: ty.last() / op.head_dim,
        places: match inputs[1].ty().shape.len() {
            2 => Places::Each(positions),
            _ => Places::From(positions[0]),
        },
        op,
    };
    let isa = scratch.isa;
    if inputs[0].same_place(&outputs[0]) {
        rows::rope_in_place(isa, &rotary, y, scratch.floats());
    } else {
        // SAFETY: passed on.
        rows::rope(isa, &rotary, unsafe { inputs[0].slice::<T>() }, y, scratch.floats());
    }
    true
}
