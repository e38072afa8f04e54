//! Secrets are wiped and never printed.

use super::*;

/// Has `some` only where `T` has no `Debug`; ambiguous where it has.
trait NoDebug<Marker> {
    fn some() {}
}
impl<T> NoDebug<()> for T {}
struct HasDebug;
impl<T: std::fmt::Debug> NoDebug<HasDebug> for T {}

#[test]
fn secrets_are_wiped_on_drop_and_never_printed() {
    fn wiped<T: ZeroizeOnDrop>() {}
    wiped::<Delta>();
    wiped::<Garbler>();
    wiped::<Evaluator>();
    <Delta as NoDebug<_>>::some();
    <Garbler as NoDebug<_>>::some();
    <Evaluator as NoDebug<_>>::some();
    let mut delta = Delta::new(Block::ONES);
    delta.zeroize();
    assert!(delta.block() == Block::ZERO);
}
