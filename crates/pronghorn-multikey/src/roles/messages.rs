//! Bytes of the messages: postcard of these structures, with the objects of
//! [`pronghorn_he::multikey::wire`] as byte strings in them.

use pronghorn_he::{
    ckks::SeededCiphertext,
    multikey::{Ciphertext, Common},
};
use pronghorn_ring::Word;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::{Description, RoleError, damaged};
use crate::{Layer, Model, Setting};

/// Encoded objects.
pub type Objects = Vec<Vec<u8>>;

/// From the model owner to the cloud, once.
#[derive(Serialize, Deserialize)]
pub struct Publication {
    /// A [`Description`].
    pub description: Vec<u8>,
    pub keys: Vec<u8>,
    pub model: Vec<EncodedLayer>,
}

/// Weights and biases of a node.
#[derive(Serialize, Deserialize)]
pub struct EncodedLayer {
    pub node: usize,
    pub weights: Vec<Objects>,
    pub addends: Objects,
}

/// From the cloud to a client, once.
#[derive(Serialize, Deserialize)]
pub struct Offer {
    /// A [`Description`].
    pub description: Vec<u8>,
    /// The owner's encryption key.
    pub key: Vec<u8>,
}

/// From the cloud to client and owner, for each image.
#[derive(Serialize, Deserialize)]
pub struct Outcome {
    pub client: [u8; 32],
    pub result: Objects,
}

/// From the model owner to the client, for each image.
#[derive(Serialize, Deserialize)]
pub struct Answer {
    pub contributions: Objects,
    pub partials: Objects,
}

pub fn encode(message: &impl Serialize) -> Vec<u8> {
    // Vectors take every write.
    postcard::to_stdvec(message).unwrap_or_default()
}

pub fn decode<T: DeserializeOwned>(what: &'static str, bytes: &[u8]) -> Result<T, RoleError> {
    let damaged = |reason: String| RoleError::Message { what, reason };
    let (message, rest) =
        postcard::take_from_bytes(bytes).map_err(|error| damaged(error.to_string()))?;
    if rest.is_empty() {
        Ok(message)
    } else {
        Err(damaged(format!("{} bytes too many", rest.len())))
    }
}

/// Longest description. It takes at most some thirty times as much in memory.
const MOST_DESCRIPTION: usize = 4 << 20;

/// A description from elsewhere.
pub fn description(what: &'static str, bytes: &[u8]) -> Result<Description, RoleError> {
    if bytes.len() > MOST_DESCRIPTION {
        let found = bytes.len();
        let reason = format!("its description has {found} bytes of {MOST_DESCRIPTION} at most");
        return Err(RoleError::Message { what, reason });
    }
    decode(what, bytes)
}

/// Each object's bytes.
pub fn objects<'a, T: 'a>(
    all: impl IntoIterator<Item = &'a T>,
    encode: impl Fn(&T, &mut Vec<u8>),
) -> Objects {
    let one = |object| {
        let mut bytes = Vec::new();
        encode(object, &mut bytes);
        bytes
    };
    all.into_iter().map(one).collect()
}

impl<W: Word> Model<W> {
    pub(super) fn encoded(&self) -> Vec<EncodedLayer> {
        let seeded = |x: &SeededCiphertext<W>, out: &mut Vec<u8>| x.encode(out);
        let layers = self.layers.iter().map(|(&node, layer)| EncodedLayer {
            node,
            weights: layer.weights.iter().map(|x| objects(x, seeded)).collect(),
            addends: objects(&layer.addends, seeded),
        });
        layers.collect()
    }

    pub(super) fn of_encoded(
        setting: &Setting<W>,
        layers: &[EncodedLayer],
    ) -> Result<Self, RoleError> {
        let layers = layers.iter().map(|layer| {
            let weights = layer
                .weights
                .iter()
                .map(|x| seeded(setting, "publication", x));
            let of_node = Layer {
                weights: weights.collect::<Result<_, _>>()?,
                addends: seeded(setting, "publication", &layer.addends)?,
            };
            Ok((layer.node, of_node))
        });
        Ok(Self {
            layers: layers.collect::<Result<_, RoleError>>()?,
        })
    }
}

pub fn seeded<W: Word>(
    setting: &Setting<W>,
    what: &'static str,
    objects: &Objects,
) -> Result<Vec<SeededCiphertext<W>>, RoleError> {
    let one = |bytes: &Vec<u8>| SeededCiphertext::decode(setting.ring(), bytes);
    objects
        .iter()
        .map(one)
        .map(|x| x.map_err(damaged(what)))
        .collect()
}

pub fn result<W: Word>(
    common: &Common<W>,
    objects: &Objects,
) -> Result<Vec<Ciphertext<W>>, RoleError> {
    let one = |bytes: &Vec<u8>| Ciphertext::decode(common, bytes);
    objects
        .iter()
        .map(one)
        .map(|x| x.map_err(damaged("outcome")))
        .collect()
}
