use thiserror::Error;

/// Why there is no such circuit.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CircuitError {
    /// The modulus cannot be one.
    #[error("shares in this modulus: {0}")]
    Modulus(#[from] pronghorn_ring::ModulusError),
    /// Values that do not fit their shares.
    #[error(
        "values in {low}..={high} do not fit {modulus}: shares hold centred values, so take a larger \
         modulus or prove a smaller range"
    )]
    Range {
        /// The least value.
        low: i64,
        /// The largest value.
        high: i64,
        /// The modulus, in words.
        modulus: String,
    },
    /// A parameter outside its range.
    #[error("{name} is {value}, and must be in {low}..={high}")]
    Parameter {
        /// Its name.
        name: &'static str,
        /// The value given.
        value: i64,
        /// The least allowed.
        low: i64,
        /// The most allowed.
        high: i64,
    },
}
