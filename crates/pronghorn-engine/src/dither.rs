//! The addends of dithered rounding, from the shares of both parties: for the oracle, where the
//! model's owner runs both in one process.
//!
//! An addend is uniform, since the server's share is, but for an error of the shares that comes on
//! top. Neither party has them. The server's shares alone open what the client rounds, and with it
//! weights. So a server never sends them.

use pronghorn_graph::fixed::dither::{Dither, Place};
use pronghorn_mpc::lean::Input;
use pronghorn_plan::{CheckedPlan, steps::activation::lean};

use crate::{
    online::{ClientRun, ServerRun},
    share::Share,
};

/// Both parties' shares of what the steps of a batch have rounded by a dither. Secret: no Debug.
pub struct Addends(Vec<Rounded>);

/// The input of a step that rounds by a dither.
struct Rounded {
    input: Input,
    server: Share,
    client: Share,
}

impl Addends {
    /// Those of a batch that is over, of which both parties have [kept](ClientRun::keep_rounded)
    /// their shares.
    pub fn of(plan: &CheckedPlan, client: &mut ClientRun, server: &mut ServerRun) -> Self {
        let shares = client.take_rounded().into_iter().zip(server.take_rounded());
        let rounded = plan.dithered_steps().zip(shares);
        let each = rounded.map(|((step, _), (client, server))| {
            let place = plan.place(step);
            Rounded {
                input: lean::input((place.input(), place.input_form())),
                server,
                client,
            }
        });
        Self(each.collect())
    }
}

impl Dither for Addends {
    fn addend(&self, place: Place, value: i32, shift: u32) -> Option<u32> {
        let Rounded {
            input,
            server,
            client,
        } = self.0.get(place.node)?;
        let (own, other) = (word(server, place)?, word(client, place)?);
        let modulus = 1i64 << input.bits;
        let exact = i64::from(value) << input.guard;
        // The error, moved so that it is not below 0.
        let error = (own + other + input.error as i64 - exact).rem_euclid(modulus);
        if error > 2 * input.error as i64 {
            return None;
        }
        let whole = 1i64 << (shift + input.guard);
        let low = (own + input.dither_offset(shift)).rem_euclid(whole);
        Some(((whole - 1 - low + error) >> input.guard) as u32)
    }
}

/// A word of a share, if it has so many.
fn word(share: &Share, place: Place) -> Option<i64> {
    let Share::Words(words) = share else {
        return Some(0);
    };
    let is_within = place.element < words.elements() && place.image < words.images();
    is_within.then(|| words.row(place.element)[place.image].into())
}
