//! The small messages, encoded and decoded; the layout is in `docs/wire.md`.

use pronghorn_plan::TrustLevel;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{
    error::{ErrorCode, SessionError},
    frame::{Kind, MAX_ERROR},
    model::{ModelId, ModelRef},
    store::{Name, Owner},
    text,
};

/// First bytes of both hellos.
pub const MAGIC: [u8; 8] = *b"PRONGHRN";

/// The protocol version of this crate.
pub const VERSION: u16 = 7;

/// The client's first message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientHello {
    /// The trust level its user asked for.
    pub trust: TrustLevel,
    /// The plan it expects, if its user named one.
    pub expected_plan_hash: Option<[u8; 32]>,
    /// The model it wants; none: the only one that the server has for it.
    pub model: Option<ModelRef>,
}

/// The server's first message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerHello {
    /// The trust level of its plan.
    pub trust: TrustLevel,
    /// The plan it serves.
    pub plan_hash: [u8; 32],
    /// Bytes of that plan.
    pub plan_length: u32,
    /// Most images it takes in one batch.
    pub max_batch: u32,
    /// Images this client may still ask for, where that is limited.
    pub images_left: Option<u64>,
    /// Prepared batches it keeps for each client; 0: it prepares none.
    pub prepared_batches: u32,
    /// Where it keeps them: preparations made with one store are of no use with another.
    pub store: Owner,
    /// The model.
    pub model: ModelId,
}

/// A client's first and only message, in place of [`ClientHello`]: it asks for the models.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListingRequest;

/// The server's answer: the models that this client may ask for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listing {
    /// In the order of their owner's list.
    pub models: Vec<Listed>,
}

/// A model of a [`Listing`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listed {
    /// The model.
    pub model: ModelId,
    /// The trust level of its plan.
    pub trust: TrustLevel,
    /// Its plan.
    pub plan_hash: [u8; 32],
}

/// The client begins a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Begin {
    /// The plan it follows.
    pub plan_hash: [u8; 32],
    /// Images of the batch.
    pub batch: u32,
    /// Batches and preparations that it has begun on the connection before.
    pub runs: u64,
    /// The preparation it wants to use, and has taken from its own store. The server answers with
    /// [`Begun`].
    pub prepared: Option<Name>,
}

/// The client begins to prepare a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prepare {
    /// The plan it follows.
    pub plan_hash: [u8; 32],
    /// Images of the batch.
    pub batch: u32,
    /// As in [`Begin`].
    pub runs: u64,
    /// What both parties will call it: random.
    pub name: Name,
}

/// The server's answer to a [`Begin`] that names a preparation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Begun {
    /// Whether the batch uses it; otherwise it runs without, and the client destroys its half.
    pub prepared: bool,
}

/// The server ends a batch, or its preparation; the client ends a preparation so before it does.
/// The frame is sealed: [`transcript`](crate::transcript).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Done {
    /// Images of the batch.
    pub batch: u32,
    /// Images this client may still ask for, where that is limited.
    pub images_left: Option<u64>,
    /// Whether the server closes after it, since others wait for the client's place. Never so from a
    /// client.
    pub leaves: bool,
}

/// Why the sender closes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorMessage {
    /// The category.
    pub code: ErrorCode,
    /// What to tell the user; printable.
    pub text: String,
}

/// A message that starts with magic and version.
pub trait Hello: Serialize + DeserializeOwned {
    /// Its frame.
    const KIND: Kind;

    /// Payload bytes.
    fn encode(&self) -> Vec<u8> {
        let mut payload = MAGIC.to_vec();
        payload.extend(VERSION.to_le_bytes());
        payload.extend(encode(self));
        payload
    }

    /// Reads payload bytes.
    ///
    /// # Errors
    /// When the magic, the version or the rest is not right.
    fn decode(payload: &[u8]) -> Result<Self, SessionError> {
        let rest = payload
            .strip_prefix(&MAGIC)
            .ok_or(SessionError::NotPronghorn)?;
        let (version, rest) = rest.split_first_chunk().ok_or(SessionError::NotPronghorn)?;
        let theirs = u16::from_le_bytes(*version);
        if theirs != VERSION {
            return Err(SessionError::Version {
                ours: VERSION,
                theirs,
            });
        }
        decode(Self::KIND, rest)
    }
}

impl Hello for ClientHello {
    const KIND: Kind = Kind::ClientHello;
}

impl Hello for ServerHello {
    const KIND: Kind = Kind::ServerHello;
}

impl Hello for ListingRequest {
    const KIND: Kind = Kind::ListingRequest;
}

impl Hello for Listing {
    const KIND: Kind = Kind::Listing;
}

/// Payload bytes of a small message, or what follows a hello's version.
pub fn encode(message: &impl Serialize) -> Vec<u8> {
    postcard::to_stdvec(message).expect("plain structs in memory always serialise")
}

/// Reads what [`encode`] wrote.
///
/// # Errors
/// When the bytes are not exactly one such message.
pub fn decode<M: DeserializeOwned>(kind: Kind, payload: &[u8]) -> Result<M, SessionError> {
    let damaged = |reason: String| SessionError::Message { kind, reason };
    // The decoder's own words say nothing to users.
    let (message, rest) = postcard::take_from_bytes(payload)
        .map_err(|_| damaged("its fields do not decode".into()))?;
    if rest.is_empty() {
        Ok(message)
    } else {
        Err(damaged(format!("{} bytes follow its end", rest.len())))
    }
}

impl ErrorMessage {
    /// A server's last words, without its own affairs.
    pub(crate) fn of_server(error: &SessionError) -> Self {
        Self {
            code: error.code(),
            text: error.told_to_client(),
        }
    }

    /// A client's last words: the category of the error and no more. The rest may depend on
    /// decrypted values.
    pub(crate) fn of_client(error: &SessionError) -> Self {
        let code = error.code();
        Self {
            code,
            text: code.words().to_owned(),
        }
    }

    /// Payload bytes; a text that is too long is cut.
    pub fn encode(&self) -> Vec<u8> {
        let mut payload = self.code.to_wire().to_le_bytes().to_vec();
        let cut = self.text.floor_char_boundary(MAX_ERROR - payload.len());
        payload.extend(&self.text.as_bytes()[..cut]);
        payload
    }

    /// Reads payload bytes of any version; control characters are escaped.
    ///
    /// # Errors
    /// When there is no code.
    pub fn decode(payload: &[u8]) -> Result<Self, SessionError> {
        let no_code = || SessionError::Message {
            kind: Kind::Error,
            reason: "it has no code".into(),
        };
        let (code, text) = payload.split_first_chunk().ok_or_else(no_code)?;
        let code = ErrorCode::from_wire(u16::from_le_bytes(*code));
        Ok(Self {
            code,
            text: text::printable(&String::from_utf8_lossy(text), "\n"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HELLO: ClientHello = ClientHello {
        trust: TrustLevel::ClientAided,
        expected_plan_hash: Some([7; 32]),
        model: None,
    };

    /// The bytes of the documentation.
    #[test]
    fn layout() {
        assert_eq!(
            HELLO.encode(),
            [&b"PRONGHRN\x07\x00\x02\x01"[..], &[7; 32], &[0]].concat()
        );
        let model = |text: &str| Some(text.parse().expect("it is a name"));
        for (text, bytes) in [
            ("ab", &b"\x01\x02ab\x00"[..]),
            ("ab@c", b"\x01\x02ab\x01\x01c"),
        ] {
            let hello = ClientHello {
                model: model(text),
                ..HELLO
            };
            assert!(hello.encode().ends_with(bytes));
        }
        let hello = ServerHello {
            trust: TrustLevel::ClientAided,
            plan_hash: [9; 32],
            plan_length: 5,
            max_batch: 300,
            images_left: None,
            prepared_batches: 4,
            store: [8; 16],
            model: ModelId::of_plan("ab"),
        };
        assert_eq!(
            hello.encode(),
            [
                &b"PRONGHRN\x07\x00\x02"[..],
                &[9; 32],
                &[5, 0xac, 2, 0, 4],
                &[8; 16],
                b"\x02ab\x011",
            ]
            .concat()
        );
        assert_eq!(ListingRequest.encode(), b"PRONGHRN\x07\x00");
        let listed = Listed {
            model: ModelId::of_plan("ab"),
            trust: TrustLevel::Encrypted,
            plan_hash: [9; 32],
        };
        let listing = Listing {
            models: vec![listed],
        };
        assert_eq!(
            listing.encode(),
            [&b"PRONGHRN\x07\x00\x01\x02ab\x011\x01"[..], &[9; 32]].concat()
        );
        let begin = |prepared| {
            encode(&Begin {
                plan_hash: [1; 32],
                batch: 2,
                runs: 5,
                prepared,
            })
        };
        assert_eq!(begin(None), [&[1; 32][..], &[2, 5, 0]].concat());
        assert_eq!(
            begin(Some(Name([3; 16]))),
            [&[1; 32][..], &[2, 5, 1], &[3; 16]].concat()
        );
        assert_eq!(
            encode(&Prepare {
                plan_hash: [1; 32],
                batch: 2,
                runs: 5,
                name: Name([3; 16])
            }),
            [&[1; 32][..], &[2, 5], &[3; 16]].concat()
        );
        assert_eq!(encode(&Begun { prepared: true }), [1]);
        assert_eq!(
            encode(&Done {
                batch: 2,
                images_left: Some(3),
                leaves: true,
            }),
            [2, 1, 3, 1]
        );
        let error = ErrorMessage {
            code: ErrorCode::Busy,
            text: "x".into(),
        };
        assert_eq!(error.encode(), [6, 0, b'x']);
        for (code, level) in TrustLevel::ALL.into_iter().enumerate() {
            assert_eq!(encode(&level), [code as u8]);
        }
    }

    proptest! {
        #[test]
        fn hellos_round_trip(
            plan_hash: [u8; 32], plan_length: u32, max_batch: u32, images_left: Option<u64>, level in 0usize..4, expected: Option<[u8; 32]>,
            prepared_batches: u32, store: [u8; 16], name in "([a-z]{1,9}(@[0-9]{1,3})?)?"
        ) {
            let trust = TrustLevel::ALL[level];
            let model = ModelId::of_plan(&name);
            let asked = (!name.is_empty()).then(|| model.clone().into());
            let listed = Listed { model: model.clone(), trust, plan_hash };
            let hello = ServerHello {
                trust, plan_hash, plan_length, max_batch, images_left, prepared_batches, store, model,
            };
            prop_assert_eq!(ServerHello::decode(&hello.encode()).unwrap(), hello);
            let hello = ClientHello { trust, expected_plan_hash: expected, model: asked };
            prop_assert_eq!(ClientHello::decode(&hello.encode()).unwrap(), hello);
            let listing = Listing { models: vec![listed.clone(), listed] };
            prop_assert_eq!(Listing::decode(&listing.encode()).unwrap(), listing);
        }

        #[test]
        fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let _ = ClientHello::decode(&bytes);
            let _ = ServerHello::decode(&bytes);
            let _ = ListingRequest::decode(&bytes);
            let _ = Listing::decode(&bytes);
            let _ = decode::<Begin>(Kind::Begin, &bytes);
            let _ = decode::<Done>(Kind::Done, &bytes);
            let _ = decode::<Prepare>(Kind::Prepare, &bytes);
            let _ = decode::<Begun>(Kind::Begun, &bytes);
            if let Ok(message) = ErrorMessage::decode(&bytes) {
                prop_assert!(message.text.chars().all(|c| c == '\n' || !c.is_control()));
            }
        }
    }

    #[test]
    fn damaged_hellos_are_refused() {
        let bytes = HELLO.encode();
        for cut in 0..bytes.len() {
            let error = ClientHello::decode(&bytes[..cut]).expect_err("cut");
            match cut {
                0..10 => assert!(matches!(error, SessionError::NotPronghorn)),
                _ => assert!(matches!(error, SessionError::Message { .. })),
            }
        }
        assert!(matches!(
            ClientHello::decode(&[&bytes[..], &[0]].concat()),
            Err(SessionError::Message { .. })
        ));
        let mut other = bytes.clone();
        other[8] = 77;
        assert!(matches!(
            ClientHello::decode(&other),
            Err(SessionError::Version {
                ours: VERSION,
                theirs: 77
            })
        ));
        other[0] = b'X';
        assert!(matches!(
            ClientHello::decode(&other),
            Err(SessionError::NotPronghorn)
        ));
    }

    #[test]
    fn error_texts_are_cut_between_characters() {
        let message = ErrorMessage {
            code: ErrorCode::Engine,
            text: "\u{e9}".repeat(MAX_ERROR),
        };
        let bytes = message.encode();
        assert!(bytes.len() <= MAX_ERROR);
        let found = ErrorMessage::decode(&bytes).expect("it has a code");
        assert!(found.text.chars().all(|c| c == '\u{e9}'));
        assert!(matches!(
            ErrorMessage::decode(&[1]),
            Err(SessionError::Message { .. })
        ));
    }
}
