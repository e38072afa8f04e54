//! A lean step cut into tiles, and what both parties put into it and get out.

use std::{ops::Range, sync::Arc};

use pronghorn_mpc::lean::LeanError;
pub use pronghorn_plan::steps::activation::programs::{Programs, Tile};
use zeroize::Zeroizing;

use crate::{
    error::EngineError,
    garbled::check_shape,
    share::{Batch, Share},
};

/// A lean step of a batch. Both parties have the same one, from the plan.
#[derive(Clone)]
pub struct Layout {
    /// Name of the step, for messages.
    pub step: String,
    /// Elements of the input, of one image.
    pub inputs: usize,
    /// Elements of the output, of one image.
    pub outputs: usize,
    /// Images.
    pub images: usize,
    /// The programs, and the elements of the output that each makes.
    pub programs: Arc<Programs>,
}

/// The tiles of a layout, and the parts whose messages are one.
pub(super) struct Work {
    pub layout: Layout,
    pub tiles: Vec<Tile>,
    pub parts: Vec<Range<usize>>,
}

impl Work {
    /// Cuts a layout that was checked with its plan.
    ///
    /// # Errors
    /// The numbers of elements and images are out of range.
    pub fn new(layout: Layout) -> Result<Self, EngineError> {
        check_shape(&layout.step, &Share::Zero, layout.inputs, layout.images)?;
        check_shape(&layout.step, &Share::Zero, layout.outputs, layout.images)?;
        let tiles = layout.programs.tiles(layout.images);
        Ok(Self {
            parts: layout.programs.parts(&tiles),
            tiles,
            layout,
        })
    }

    /// Checks a share of the input.
    ///
    /// # Errors
    /// It is of another shape.
    pub fn check(&self, share: &Share) -> Result<(), EngineError> {
        let Layout {
            step,
            inputs,
            images,
            ..
        } = &self.layout;
        check_shape(step, share, *inputs, *images).map(|_| ())
    }

    /// The step's error.
    pub fn error(&self, source: LeanError) -> EngineError {
        let step = self.layout.step.clone();
        EngineError::Lean { step, source }
    }

    /// A party's words of a tile, by word, then by instance.
    pub fn inputs(&self, tile: &Tile, share: &Share) -> Vec<Zeroizing<Vec<u32>>> {
        let (images, group) = (self.layout.images, &self.layout.programs.groups[tile.group]);
        let words = group.circuit.inputs();
        let word = |place: usize| {
            let mut values = Zeroizing::new(vec![0; tile.instances.len()]);
            if let Share::Words(share) = share {
                for (value, instance) in values.iter_mut().zip(tile.instances.clone()) {
                    let (element, image) = (instance / images, instance % images);
                    let source = group.sources.get(element * words + place);
                    *value = share.words()[source * images + image] as u32;
                }
            }
            values
        };
        (0..words).map(word).collect()
    }

    /// Puts a party's residues of a tile where they belong.
    pub fn scatter(&self, tile: &Tile, residues: &[u64], output: &mut Batch) {
        let (images, group) = (self.layout.images, &self.layout.programs.groups[tile.group]);
        let words = output.words_mut();
        for (instance, &residue) in tile.instances.clone().zip(residues) {
            let (element, image) = (instance / images, instance % images);
            words[group.elements.get(element) * images + image] = residue as i32;
        }
    }

    /// A batch for the output.
    pub fn output(&self) -> Batch {
        Batch::zeros(self.layout.outputs, self.layout.images)
    }
}
