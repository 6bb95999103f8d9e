//! How products become scores, what a mask hides of a tile of them, and what dropout drops of its probabilities.

use std::ops::Range;

use tightrope_core::ops::{Dropout, Mask, RandomKey, fill_uniform};

use super::Dims;
use crate::fast::vmath::{Simd, tanh};

/// How scores are made of products of queries and keys.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scores {
    /// Factor on products.
    pub scale: f32,
    /// What scores stay below in size, where they are capped.
    pub cap: Option<f32>,
}

impl Scores {
    /// Of products times a factor.
    pub fn scaled(scale: f32) -> Self {
        Self { scale, cap: None }
    }

    /// Makes scores of products of queries and keys.
    #[inline(always)]
    pub(super) fn of_products<S: Simd>(&self, products: &mut [f32]) {
        products.iter_mut().for_each(|product| *product *= self.scale);
        if let Some(cap) = self.cap {
            products.iter_mut().for_each(|score| *score = cap * tanh::<S>(*score / cap));
        }
    }

    /// What scores of a row of a tile grow by with their products, the factor apart; nothing where they aren't capped.
    #[inline(always)]
    pub(super) fn slopes<'s>(&self, scores: &[f32], to: &'s mut [f32; KEYS]) -> Option<&'s [f32]> {
        let cap = self.cap?;
        let to = &mut to[..scores.len()];
        to.iter_mut().zip(scores).for_each(|(slope, score)| *slope = 1.0 - (score / cap).powi(2));
        Some(to)
    }
}

/// A mask and dropout with what they read.
#[derive(Clone, Copy, Debug)]
pub struct Masked<'a> {
    /// Which keys a query attends to.
    pub mask: Mask,
    /// The document of each position, (B, T), where the mask is of documents.
    pub documents: Option<&'a [i32]>,
    /// Dropout and the key of its random numbers.
    pub dropout: Option<(Dropout, RandomKey)>,
}

/// Queries and keys of a tile of scores.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tile {
    /// The first query.
    pub first: usize,
    /// Queries.
    pub count: usize,
    /// The first key.
    pub start: usize,
    /// Past the last key.
    pub end: usize,
    /// Whether queries attend to no later key.
    pub causal: bool,
}

impl Tile {
    /// Queries at the tile's beginning that attend to none of the keys from `key` on.
    pub fn before(&self, key: usize) -> usize {
        if self.causal { key.saturating_sub(self.first) } else { 0 }
    }

    /// Rows that are multiplied at a time, of queries or of keys: few where the diagonal crosses the tile.
    pub fn strip(&self, all: usize) -> usize {
        if !self.causal || self.end <= self.first + 1 { all } else { 8 }
    }
}

/// Most keys of a tile.
pub(super) const KEYS: usize = 128;

impl Masked<'_> {
    /// Attention to all keys up to the query's own.
    pub const CAUSAL: Self = Self { mask: Mask::CAUSAL, documents: None, dropout: None };

    /// Tiles of keys that `count` queries from `first` on attend to, in order.
    pub(super) fn tiles(
        &self,
        first: usize,
        count: usize,
        dims: &Dims,
    ) -> impl Iterator<Item = Tile> + use<> {
        let keys = self.keys(first, count, dims);
        let causal = self.mask.causal;
        (keys.start / KEYS * KEYS..keys.end).step_by(KEYS).map(move |start| Tile {
            first,
            count,
            start,
            end: (start + KEYS).min(keys.end),
            causal,
        })
    }

    /// Keys that `count` queries from `first` on attend to, documents apart.
    pub(super) fn keys(&self, first: usize, count: usize, dims: &Dims) -> Range<usize> {
        let of = |query| self.mask.keys(query, dims.positions);
        of(first).start..of(first + count - 1).end
    }

    /// Of a row of a tile, which begins with the score of key `tile.start`: makes scores −∞ that don't count. Gives the number of
    /// scores up to the last that counts, if all of a document do.
    pub(super) fn hide(
        &self,
        dims: &Dims,
        b: usize,
        row: usize,
        tile: &Tile,
        scores: &mut [f32],
    ) -> usize {
        let query = tile.first + row;
        let keys = self.mask.keys(query, dims.positions);
        let within = |key: usize| key.clamp(tile.start, tile.end) - tile.start;
        let (low, high) = (within(keys.start), within(keys.end));
        scores[..low].fill(f32::NEG_INFINITY);
        if let Some(documents) = self.documents {
            let documents = &documents[b * dims.positions..][..dims.positions];
            let own = documents[query];
            for (score, document) in scores[..high].iter_mut().zip(&documents[tile.start..]) {
                if *document != own {
                    *score = f32::NEG_INFINITY;
                }
            }
        }
        high
    }

    /// What probabilities that dropout keeps are multiplied by; 1 without it.
    pub(super) fn kept_scale(&self) -> f32 {
        self.dropout.map_or(1.0, |(dropout, _)| (1.0 / (1.0 - dropout.p)) as f32)
    }

    /// What the probabilities of a row of a tile are multiplied by, of query `row` over all heads and sequences; nothing without
    /// dropout.
    pub(super) fn kept<'k>(
        &self,
        dims: &Dims,
        row: usize,
        tile: &Tile,
        to: &'k mut [f32; KEYS],
    ) -> Option<&'k [f32]> {
        let (dropout, key) = self.dropout?;
        let to = &mut to[..tile.end - tile.start];
        let element = Dropout::element(row as u64, tile.start as u64, dims.positions as u64);
        fill_uniform(key, dropout.stream, element, to);
        let (p, scale) = (dropout.p as f32, self.kept_scale());
        to.iter_mut().for_each(|draw| *draw = if *draw < p { 0.0 } else { scale });
        Some(to)
    }
}
