//! The plan as text, for people: a table that fits 120 columns, and details on request.

use std::fmt;

use pronghorn_graph::finish::Finish;

use crate::{
    categories::Categories,
    checked::CheckedPlan,
    cost::{self, Speed, StepCost},
    description::cut,
    names::Names,
    plan::Plan,
    runner_up::RunnerUp,
    slot_form::slot_form,
};

/// Most columns of a line.
const WIDTH: usize = 120;

/// Columns that are cut where a table of steps is wider than [`WIDTH`], in this order: the index
/// of each and its least width.
const CUT: [(usize, usize); 3] = [(1, 36), (0, 22), (2, 12)];

/// Most characters of the model's name.
const LONGEST_NAME: usize = 80;

impl fmt::Display for CheckedPlan {
    /// The plan in lines of at most 120 columns. `{:#}` has details: ranges and all parameters.
    /// Seconds are those of the nominal CPU.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = Text {
            plan: self,
            names: None,
            speed: &Speed::default(),
        };
        text.fmt(f)
    }
}

/// A plan as text.
pub struct Text<'a> {
    /// The plan.
    pub plan: &'a CheckedPlan,
    /// The names of the model's file, for its owner.
    pub names: Option<&'a Names>,
    /// The machine whose seconds it shows.
    pub speed: &'a Speed,
}

impl Text<'_> {
    /// The number of a step, and its node's name.
    fn step(&self, index: usize) -> String {
        match self.names.and_then(|names| names.step(index)) {
            Some(name) => format!("{index} {name}"),
            None => index.to_string(),
        }
    }
}

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let &Self { plan, speed, .. } = self;
        head(f, self)?;
        steps(f, self)?;
        if f.alternate() {
            details(f, self)?;
        }
        writeln!(f)?;
        totals(f, plan, speed)
    }
}

fn head(f: &mut fmt::Formatter<'_>, text: &Text<'_>) -> fmt::Result {
    let plan = text.plan;
    let (format, hash) = (plan.format, plan.hash_hex());
    let model = text.names.map_or(&plan.model, |names| &names.model);
    let model = match f.alternate() {
        true => model.clone(),
        false => cut(model, LONGEST_NAME),
    };
    writeln!(f, "plan of {model}, format {format}")?;
    if text.names.is_some() {
        writeln!(f, "named {} for clients", cut(&plan.model, LONGEST_NAME))?;
    }
    writeln!(f, "hash {hash}")?;
    writeln!(f, "trust level {}:", plan.trust)?;
    writeln!(f, "  server learns {}", plan.trust.server_learns())?;
    writeln!(f, "  client learns {}", plan.client_learns())?;
    named(f, "classes", &plan.class_names)?;
    named(f, "columns", &plan.columns)?;
    named(f, "categories", &categories(plan))?;
    let outputs = plan
        .outputs
        .iter()
        .map(|output| format!("{} {:?}", output.name, output.shape));
    named(f, "outputs", &outputs.collect::<Vec<_>>())?;
    for end in &plan.finish {
        if let Finish::Scale { exponents } = end {
            let all = exponents.iter().map(|exponent| format!("2^{exponent}"));
            named(f, "scales of outputs", &all.collect::<Vec<_>>())?;
        }
    }
    if plan.is_dithered() {
        writeln!(
            f,
            "rounding by a dither: results differ from run to run, and one input asked again tells more of the values \
             within"
        )?;
    }
    writeln!(f, "batches of up to {} images", plan.max_batch)?;
    if let Some(lifetime) = plan.flood() {
        writeln!(f, "floods hide noise up to a distance of {lifetime}")?;
    }
    writeln!(f)
}

/// A line of names, if there are any; all with details, and else as many as fit.
fn named(f: &mut fmt::Formatter<'_>, what: &str, names: &[String]) -> fmt::Result {
    let all = names.join(", ");
    match (names.is_empty(), f.alternate()) {
        (true, _) => Ok(()),
        (false, true) => writeln!(f, "{what}: {all}"),
        (false, false) => writeln!(f, "{what}: {}", cut(&all, LONGEST_NAME)),
    }
}

/// The values that are categories, and how many these are.
fn categories(plan: &Plan) -> Vec<String> {
    let of_value = |each: &Categories| {
        let name = plan.columns.get(each.place).cloned();
        let name = name.unwrap_or_else(|| format!("value {}", each.place));
        format!("{} of {name}", each.known.count())
    };
    plan.categories.iter().map(of_value).collect()
}

/// Bytes with three figures and a unit; nothing for 0.
fn size(bytes: f64) -> String {
    match bytes {
        0.0 => String::new(),
        _ if bytes >= 1e9 => format!("{:.3} GB", bytes / 1e9),
        _ if bytes >= 1e6 => format!("{:.3} MB", bytes / 1e6),
        _ => format!("{:.3} kB", bytes / 1e3),
    }
}

/// Seconds with three figures, and no exponent.
fn seconds(value: f64) -> String {
    if value <= 0.0 {
        return "0".to_owned();
    }
    let decimals = 2 - value.log10().floor() as i32;
    format!("{value:.*}", decimals.clamp(0, 12) as usize)
}

fn shape(shape: &[usize]) -> String {
    let sizes: Vec<String> = shape.iter().map(usize::to_string).collect();
    sizes.join("x")
}

fn steps(f: &mut fmt::Formatter<'_>, text: &Text<'_>) -> fmt::Result {
    let plan = text.plan;
    let batch = if plan.trust.shares() {
        1
    } else {
        plan.max_batch
    };
    writeln!(f, "bytes of an image, in batches of {batch}:")?;
    let columns = ["step", "protocol", "shape", "ring", "up", "down"];
    let mut rows = vec![columns.map(str::to_owned)];
    for (index, step) in plan.steps.iter().enumerate() {
        let cost = cost::step(plan, index, batch);
        let description = step.kind.as_step().describe(&plan.compiled(index));
        let each = |bytes: u64| size(bytes as f64 / batch as f64);
        rows.push([
            text.step(index),
            description.what,
            shape(&step.value.shape),
            description.ring,
            each(cost.bytes_up),
            each(cost.bytes_down),
        ]);
    }
    fit(&mut rows);
    table(f, &rows)
}

/// Cuts cells so that lines have at most [`WIDTH`] columns.
fn fit<const COLUMNS: usize>(rows: &mut [[String; COLUMNS]]) {
    let widths = widths(rows);
    let mut excess = (widths.iter().sum::<usize>() + 2 * (COLUMNS - 1)).saturating_sub(WIDTH);
    for (column, least) in CUT {
        let less = excess.min(widths[column].saturating_sub(least));
        excess -= less;
        for row in rows.iter_mut() {
            row[column] = cut(&row[column], widths[column] - less);
        }
    }
}

fn details(f: &mut fmt::Formatter<'_>, text: &Text<'_>) -> fmt::Result {
    let &Text { plan, speed, .. } = text;
    writeln!(f)?;
    writeln!(f, "details:")?;
    for (index, step) in plan.steps.iter().enumerate() {
        let description = step.kind.as_step().describe(&plan.compiled(index));
        let (value, form) = (&step.value, &plan.forms()[index]);
        writeln!(f, "{}: {}", text.step(index), description.what)?;
        writeln!(
            f,
            "    {}, {}..{} /2^{}",
            shape(&value.shape),
            value.low,
            value.high,
            value.fraction_bits
        )?;
        if plan.trust.shares() {
            let modulus = match form.prime {
                Some(prime) => prime.to_string(),
                None => format!("2^{}", form.bits),
            };
            writeln!(f, "    shares modulo {modulus}, {} guard bits", form.guard)?;
        }
        let adds = cost::step(plan, index, 1).multiply_adds;
        if adds > 0 {
            writeln!(f, "    {:.3} M multiply-adds", adds as f64 / 1e6)?;
        }
        if !description.parameters.is_empty() {
            phrases(f, &description.parameters)?;
        }
        if let Some(other) = RunnerUp::of(plan, index) {
            let (own, cost) = (cost::step(plan, index, 1), other.cost(plan, index, 1));
            let phrase = |cost: StepCost| {
                let bytes = size((cost.bytes_up + cost.bytes_down) as f64);
                let cpu = seconds(cost.seconds.at(speed));
                let trips = if cost.rounds == 1 { "trip" } else { "trips" };
                format!("{bytes}, {} round {trips} and {cpu} s", cost.rounds)
            };
            writeln!(f, "    takes {}", phrase(own))?;
            writeln!(f, "    {} would take {}", other.name(), phrase(cost))?;
        }
    }
    Ok(())
}

/// Phrases between commas, in lines of at most [`WIDTH`] columns.
fn phrases(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    let mut line = String::new();
    for phrase in text.split_inclusive(", ") {
        let columns = 4 + line.chars().count() + phrase.trim_end().chars().count();
        if columns > WIDTH && !line.is_empty() {
            writeln!(f, "    {}", line.trim_end())?;
            line.clear();
        }
        line.push_str(phrase);
    }
    writeln!(f, "    {line}")
}

fn totals(f: &mut fmt::Formatter<'_>, plan: &CheckedPlan, speed: &Speed) -> fmt::Result {
    let mut rows = vec![["", "up", "down", "rounds", "seconds, one core"].map(str::to_owned)];
    let mut row = |name: &str, cost: &cost::StepCost, images: usize| {
        let each = |bytes: u64| size(bytes as f64 / images as f64);
        rows.push([
            name.to_owned(),
            each(cost.bytes_up),
            each(cost.bytes_down),
            cost.rounds.to_string(),
            seconds(cost.seconds.at(speed) / images as f64),
        ]);
    };
    let (batch, prepared) = (plan.max_batch, cost::prepared(plan, 1));
    row("one image alone", &cost::total(plan, 1), 1);
    if prepared.rounds > 0 {
        row("  prepared: offline", &prepared, 1);
        row("  prepared: online", &cost::online(plan, 1), 1);
    }
    if batch > 1 {
        let name = format!("an image of a batch of {batch}");
        row(&name, &cost::total(plan, batch), batch);
    }
    table(f, &rows)?;
    once(f, plan)?;
    let memory = cost::memory(plan, batch);
    writeln!(
        f,
        "memory of a full batch: server {}, client shares {}",
        size(memory.server as f64),
        size(memory.client as f64)
    )?;
    if !f.alternate() {
        return Ok(());
    }
    let Some(slots) = slot_form(plan, batch) else {
        return Ok(());
    };
    writeln!(
        f,
        "in slots of CKKS with complex packing: q of up to {} bits, {:.2} times the bytes, {:.1} \
         times the seconds",
        slots.modulus_bits, slots.bytes, slots.seconds
    )
}

/// What comes once for a connection or a client.
fn once(f: &mut fmt::Formatter<'_>, plan: &CheckedPlan) -> fmt::Result {
    let mut line = |what: &str, bytes: u64, whom: &str| match bytes {
        0 => Ok(()),
        _ => writeln!(f, "once a {whom}: {} {what}", size(bytes as f64)),
    };
    line(
        "each way to set up oblivious transfers",
        cost::ot_setup(plan),
        "connection",
    )?;
    line(
        "down, published polynomials",
        cost::publication(plan),
        "client and model",
    )?;
    line(
        "up, keys for rotations",
        plan.slot_key_bytes(),
        "client and server",
    )?;
    line(
        "down, rows of `a` of the first batch",
        cost::published(plan),
        "connection",
    )?;
    if plan.checks_keys() {
        let [up, down] = cost::key_check(plan).map(|bytes| size(bytes as f64));
        match plan.key_checks {
            1 => writeln!(
                f,
                "the client's keys are not checked: one answer to a false key gives the weights of a layer"
            )?,
            sets => writeln!(
                f,
                "once a connection: {up} up and {down} down, to check the client's keys (1 of {sets} sets is used)"
            )?,
        }
    }
    Ok(())
}

/// Left-aligned columns, two spaces apart.
fn table<const COLUMNS: usize>(
    f: &mut fmt::Formatter<'_>,
    rows: &[[String; COLUMNS]],
) -> fmt::Result {
    let widths = widths(rows);
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

/// Characters of the longest cell of each column.
fn widths<const COLUMNS: usize>(rows: &[[String; COLUMNS]]) -> [usize; COLUMNS] {
    std::array::from_fn(|column| {
        let widths = rows.iter().map(|row| row[column].chars().count());
        widths.max().unwrap_or(0)
    })
}

#[cfg(test)]
mod tests {
    use super::seconds;

    #[test]
    fn seconds_have_three_figures() {
        for (value, text) in [
            (0.0, "0"),
            (0.000_024_61, "0.0000246"),
            (0.0046, "0.00460"),
            (0.411, "0.411"),
            (1.0, "1.00"),
            (123.4, "123"),
            (1234.5, "1234"),
        ] {
            assert_eq!(seconds(value), text);
        }
    }
}
