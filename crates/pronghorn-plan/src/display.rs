//! The plan as text, for people.

use std::fmt;

use pronghorn_graph::{
    fixed::{ActivationOp, LocalOp},
    geometry::ConvGeometry,
};
use pronghorn_ring::security::{self, SecurityLevel};

use crate::{
    cost,
    hiding::Hiding,
    plan::{Engine, LinearPlan, Plan, Protocol, Step, StepKind},
    slots::{self, SlotPlan},
    trust::TrustLevel,
};

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let batch = self.max_batch;
        let total = cost::total(self, batch);
        let per_image = |bytes: u64| bytes as f64 / batch as f64;
        writeln!(
            f,
            "plan of {}, format {}, hash {}",
            self.model,
            self.format,
            self.hash_hex()
        )?;
        writeln!(f, "trust level {}: {}", self.trust, self.trust.reveals())?;
        writeln!(f, "batches of up to {batch} images")?;
        writeln!(f)?;
        let columns = [
            "step",
            "what",
            "shape",
            "range",
            "parameters",
            "M mult-adds/image",
            "kB up/image",
            "kB down/image",
        ];
        let mut rows = vec![columns.map(str::to_owned)];
        for (index, step) in self.steps.iter().enumerate() {
            let cost = cost::step(self, index, batch);
            let number = |value: f64| {
                if value == 0.0 {
                    String::new()
                } else {
                    format!("{value:.3}")
                }
            };
            rows.push([
                format!("{index} {}", step.name),
                what(step),
                shape(&step.value.shape),
                format!(
                    "{}..{} /2^{}",
                    step.value.low, step.value.high, step.value.fraction_bits
                ),
                parameters(step),
                number(per_image(cost.multiply_adds) / 1e6),
                number(per_image(cost.bytes_up) / 1e3),
                number(per_image(cost.bytes_down) / 1e3),
            ]);
        }
        table(f, &rows)?;
        writeln!(f)?;
        let one = cost::total(self, 1);
        writeln!(
            f,
            "one image alone: up {:.3} MB, down {:.3} MB, {} rounds, predicted {:.4} s on one core, both parties added",
            one.bytes_up as f64 / 1e6,
            one.bytes_down as f64 / 1e6,
            one.rounds,
            one.seconds
        )?;
        if self.trust == TrustLevel::TwoParty {
            writeln!(
                f,
                "0.2 MB each way set up oblivious transfers, once a connection"
            )?;
        }
        let publication = cost::publication(self);
        if publication > 0 {
            writeln!(
                f,
                "{:.3} MB of published polynomials come before the first batch, once a client and model, and serve {} images",
                publication as f64 / 1e6,
                cost::PUBLICATION_IMAGES
            )?;
        }
        let keys = slots::key_bytes(self);
        if keys > 0 {
            let rotations = slots::keys(self).map_or(0, |keys| {
                let of = |keys: &slots::SlotKeys| keys.steps.len() + usize::from(keys.swap);
                keys.iter().map(|(keys, _)| of(keys)).sum()
            });
            writeln!(
                f,
                "{:.3} MB of keys, those of {rotations} rotations among them, go up before the first batch, once a client and server",
                keys as f64 / 1e6
            )?;
        }
        let published = cost::published(self);
        if published > 0 {
            writeln!(
                f,
                "{:.3} MB of what comes down, the rows of `a`, come with the first batch of a connection only",
                published as f64 / 1e6
            )?;
        }
        writeln!(f, "a full batch, frames not counted:")?;
        writeln!(
            f,
            "  up {:.4} MB, down {:.4} MB an image; {} rounds",
            per_image(total.bytes_up) / 1e6,
            per_image(total.bytes_down) / 1e6,
            total.rounds
        )?;
        writeln!(
            f,
            "  server memory {:.1} MB, client shares {:.1} MB",
            total.memory.server as f64 / 1e6,
            total.memory.client as f64 / 1e6
        )?;
        writeln!(
            f,
            "  predicted {:.3} s on one core, both parties added ({:.0} images/s)",
            total.seconds,
            batch as f64 / total.seconds
        )?;
        if let Some(slots) = cost::slot_form(self, batch) {
            writeln!(
                f,
                "values in coefficients; in slots of CKKS with complex packing: q of up to {} bits, {:.2} times the bytes, {:.1} times the seconds",
                slots.modulus_bits, slots.bytes, slots.seconds
            )?;
        }
        Ok(())
    }
}

/// The step's kind in a few words.
fn what(step: &Step) -> String {
    match &step.kind {
        StepKind::Input => "input, client's".into(),
        StepKind::Linear(linear) => linear_name(linear),
        StepKind::Slots(slots) => format!("slot engine, {}", layer_name(&slots.geometry)),
        StepKind::Local(op) => format!("{} on shares", local_name(op)),
        StepKind::Activation(activation) => {
            let names: Vec<String> = activation.ops.iter().map(activation_name).collect();
            let names = if names.is_empty() {
                "exact shares".into()
            } else {
                names.join(", ")
            };
            let how = match activation.protocol {
                Protocol::Reveal => "by the client",
                Protocol::Garbled => "by garbled circuit",
                Protocol::Product => "by oblivious transfer",
            };
            format!("{names} {how}")
        }
        StepKind::Open => "opened to the client".into(),
        StepKind::Encrypted(_) => "the whole network, on ciphertexts".into(),
    }
}

fn linear_name(linear: &LinearPlan) -> String {
    let parts = if linear.parts.len() > 1 {
        ", two digits"
    } else {
        ""
    };
    let engine = match linear.engine {
        Engine::Batch => "batch engine",
        Engine::Coefficient => "coefficient engine",
        Engine::Slot => "slot engine",
    };
    format!("{engine}, {}{parts}", layer_name(&linear.geometry))
}

fn layer_name(geometry: &ConvGeometry) -> String {
    let [kernel_h, kernel_w] = geometry.window.kernel;
    let name = if geometry.input == [1, 1] {
        format!(
            "dense {} to {}",
            geometry.in_channels, geometry.out_channels
        )
    } else {
        format!(
            "conv {kernel_h}x{kernel_w}, {} to {}",
            geometry.in_channels, geometry.out_channels
        )
    };
    let groups = if geometry.groups > 1 {
        format!(", {} groups", geometry.groups)
    } else {
        String::new()
    };
    format!("{name}{groups}")
}

fn local_name(op: &LocalOp) -> &'static str {
    match op {
        LocalOp::Add { .. } => "add",
        LocalOp::SumPool { .. } => "sum-pool",
        LocalOp::Reshape => "reshape",
        LocalOp::Pad { .. } => "pad",
        LocalOp::Concat { .. } => "concat",
        LocalOp::Transpose { .. } => "transpose",
    }
}

fn activation_name(op: &ActivationOp) -> String {
    match op {
        ActivationOp::Relu => "relu".into(),
        ActivationOp::Clip { low, high } => format!("clip {low}..{high}"),
        ActivationOp::LeakyRelu { slope, shift } => format!("leaky relu {slope}/2^{shift}"),
        ActivationOp::Square => "square".into(),
        ActivationOp::MaxPool { window } => {
            format!("max-pool {}x{}", window.kernel[0], window.kernel[1])
        }
        ActivationOp::Requantise { shift, low, high } => {
            format!("drop {shift} bits into {low}..{high}")
        }
    }
}

fn parameters(step: &Step) -> String {
    match &step.kind {
        StepKind::Linear(linear) => {
            format!(
                "N {}, q {} ({} bits), {}, -{} and -{} bits of a and b down, {}",
                linear.degree,
                linear.modulus,
                linear.modulus_bits(),
                linear.shares.map_or_else(
                    || format!("scale 2^{}", linear.scale_log),
                    |shares| format!(
                        "shares of {} and {} guard bits",
                        shares.value_bits, shares.guard_bits
                    )
                ),
                linear.dropped_bits_a,
                linear.dropped_bits,
                security_of(linear.degree, linear.modulus_bits())
            ) + &hiding(linear)
        }
        StepKind::Slots(slots) => slot_parameters(slots),
        StepKind::Encrypted(plan) => format!(
            "N {}, {} primes ({} bits), scale 2^{}, answers of {} polynomials and {} primes, flooded within 2^{} ({:.0} \
             bits at worst), error {:.1e}, {}",
            plan.degree,
            plan.primes.len(),
            plan.modulus_bits(),
            plan.scale_log,
            plan.answer_polys,
            plan.answer_limbs,
            plan.flood_log,
            plan.worst_flood_bits,
            plan.error,
            security_of(plan.degree, plan.modulus_bits())
        ),
        _ => String::new(),
    }
}

/// Bits that it takes to find the weights in what is published, by the primal attack; and in what the rotation-free paper would publish of the layer.
fn hiding(linear: &LinearPlan) -> String {
    Hiding::of(linear).map_or(String::new(), |hiding| {
        format!(
            ", published filters at {:.0} bits (as in the paper: {} unknowns, {:.0} bits)",
            hiding.ours, hiding.paper_unknowns, hiding.paper
        )
    })
}

fn slot_parameters(slots: &SlotPlan) -> String {
    let Ok(packing) = slots.packing() else {
        return String::new();
    };
    let (parameters, counts) = (packing.parameters(), packing.counts());
    format!(
        "N {}, q of {:.0} bits, t {}, {} and {} ciphertexts, {} and {} rotations of inputs and outputs, {} products, {}",
        parameters.n(),
        parameters.log_modulus(),
        slots.t,
        counts.inputs,
        counts.outputs,
        counts.input_rotations,
        counts.output_rotations,
        counts.products,
        match parameters.security() {
            Some(_) => "128-bit security",
            None => "below 128-bit security",
        }
    )
}

fn security_of(degree: usize, modulus_bits: u32) -> &'static str {
    security::check(degree, modulus_bits).map_or("below 128-bit security", |level| match level {
        SecurityLevel::Bits128 => "128-bit security",
        SecurityLevel::Bits192 => "192-bit security",
        SecurityLevel::Bits256 => "256-bit security",
    })
}

fn shape(shape: &[usize]) -> String {
    shape
        .iter()
        .map(usize::to_string)
        .collect::<Vec<_>>()
        .join("x")
}

/// Left-aligned columns, two spaces apart.
fn table<const COLUMNS: usize>(
    f: &mut fmt::Formatter<'_>,
    rows: &[[String; COLUMNS]],
) -> fmt::Result {
    let widths: [usize; COLUMNS] = std::array::from_fn(|column| {
        rows.iter()
            .map(|row| row[column].chars().count())
            .max()
            .unwrap_or(0)
    });
    for row in rows {
        let cells: Vec<String> = row
            .iter()
            .zip(widths)
            .map(|(cell, width)| format!("{cell:<width$}"))
            .collect();
        writeln!(f, "{}", cells.join("  ").trim_end())?;
    }
    Ok(())
}
