//! The records of a TLS 1.3 connection whose handshake is over (RFC 8446, section 5).
//!
//! rustls makes the handshake, the keys and the ciphers. The framing is ours, since rustls copies
//! each byte five times, and holds one lock for both directions.

use std::{
    ops::Range,
    sync::{Arc, Mutex},
};

use rustls::{
    AlertDescription, ConnectionTrafficSecrets, ContentType, Error, ExtractedSecrets,
    InvalidMessage, ProtocolVersion, Tls13CipherSuite,
    crypto::cipher::{
        AeadKey, InboundOpaqueMessage, Iv, MessageDecrypter, MessageEncrypter, OutboundChunks,
        OutboundPlainMessage,
    },
    kernel::KernelConnection,
};

use crate::lock::lock;

/// Bytes of a record's header: its kind, the version, the length.
pub(super) const HEADER: usize = 5;

/// Bytes of plaintext in the largest record.
pub(super) const FRAGMENT: usize = 1 << 14;

/// Bytes of the largest protected record, its header included.
pub(super) const RECORD: usize = HEADER + FRAGMENT + 256;

/// Records under one key, before the sender takes the next. AES-GCM may have 2^24.5 (RFC 8446,
/// section 5.5).
const RECORDS_A_KEY: u64 = 1 << 24;

/// `KeyUpdate` of RFC 8446, section 4.6.3, without its last byte: whether an answer is wanted.
const KEY_UPDATE: [u8; 4] = [24, 0, 0, 1];

/// The keys that come after those in use.
pub(super) trait Schedule: Send {
    fn next_to_send(&mut self) -> Result<(u64, ConnectionTrafficSecrets), Error>;
    fn next_to_receive(&mut self) -> Result<(u64, ConnectionTrafficSecrets), Error>;
}

impl<Data: Send> Schedule for KernelConnection<Data> {
    fn next_to_send(&mut self) -> Result<(u64, ConnectionTrafficSecrets), Error> {
        self.update_tx_secret()
    }

    fn next_to_receive(&mut self) -> Result<(u64, ConnectionTrafficSecrets), Error> {
        self.update_rx_secret()
    }
}

type Shared = Arc<Mutex<Box<dyn Schedule>>>;

/// Both directions of a connection whose handshake is over.
pub(super) fn directions(
    suite: &'static Tls13CipherSuite,
    secrets: ExtractedSecrets,
    schedule: impl Schedule + 'static,
    takes_tickets: bool,
) -> (Sealer, Opener) {
    let schedule: Shared = Arc::new(Mutex::new(Box::new(schedule)));
    let sealer = Sealer {
        suite,
        schedule: schedule.clone(),
        cipher: encrypter(suite, secrets.tx.1),
        sequence: secrets.tx.0,
        records_a_key: RECORDS_A_KEY,
    };
    let opener = Opener {
        suite,
        schedule,
        cipher: decrypter(suite, secrets.rx.1),
        sequence: secrets.rx.0,
        takes_tickets,
    };
    (sealer, opener)
}

fn encrypter(
    suite: &Tls13CipherSuite,
    secrets: ConnectionTrafficSecrets,
) -> Option<Box<dyn MessageEncrypter>> {
    let (key, iv) = parts(secrets)?;
    Some(suite.aead_alg.encrypter(key, iv))
}

fn decrypter(
    suite: &Tls13CipherSuite,
    secrets: ConnectionTrafficSecrets,
) -> Option<Box<dyn MessageDecrypter>> {
    let (key, iv) = parts(secrets)?;
    Some(suite.aead_alg.decrypter(key, iv))
}

/// None for a cipher that this crate does not offer.
fn parts(secrets: ConnectionTrafficSecrets) -> Option<(AeadKey, Iv)> {
    match secrets {
        ConnectionTrafficSecrets::Aes128Gcm { key, iv }
        | ConnectionTrafficSecrets::Aes256Gcm { key, iv }
        | ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => Some((key, iv)),
        _ => None,
    }
}

/// Makes the records that this side sends. Secret: no Debug.
pub(super) struct Sealer {
    suite: &'static Tls13CipherSuite,
    schedule: Shared,
    cipher: Option<Box<dyn MessageEncrypter>>,
    /// Of the next record under this key.
    sequence: u64,
    records_a_key: u64,
}

impl Sealer {
    /// Seals data, of up to [`FRAGMENT`] bytes a record, and hands out each record. A key that has
    /// sealed enough is renewed first.
    ///
    /// # Errors
    /// When a cipher fails, which none of ours does.
    pub(super) fn seal_data(
        &mut self,
        data: &[u8],
        mut send: impl FnMut(Vec<u8>),
    ) -> Result<(), Error> {
        for fragment in data.chunks(FRAGMENT) {
            if self.sequence >= self.records_a_key {
                send(self.renew()?);
            }
            send(self.seal(ContentType::ApplicationData, fragment)?);
        }
        Ok(())
    }

    /// The record of a fatal alert, or of a goodbye.
    pub(super) fn seal_alert(&mut self, alert: AlertDescription) -> Result<Vec<u8>, Error> {
        const WARNING: u8 = 1;
        const FATAL: u8 = 2;
        let level = match alert {
            AlertDescription::CloseNotify => WARNING,
            _ => FATAL,
        };
        self.seal(ContentType::Alert, &[level, alert.into()])
    }

    /// The record that says that the next one is under the next key. It asks for no answer: each
    /// side counts its own records.
    pub(super) fn renew(&mut self) -> Result<Vec<u8>, Error> {
        let mut update = KEY_UPDATE.to_vec();
        update.push(0);
        let record = self.seal(ContentType::Handshake, &update)?;
        let (sequence, secrets) = lock(&self.schedule).next_to_send()?;
        self.cipher = encrypter(self.suite, secrets);
        self.sequence = sequence;
        Ok(record)
    }

    /// Seals one record of a kind.
    pub(super) fn seal(&mut self, kind: ContentType, payload: &[u8]) -> Result<Vec<u8>, Error> {
        let plain = OutboundPlainMessage {
            typ: kind,
            version: ProtocolVersion::TLSv1_3,
            payload: OutboundChunks::Single(payload),
        };
        let cipher = self.cipher.as_mut().ok_or(Error::EncryptError)?;
        let sealed = cipher.encrypt(plain, self.sequence)?;
        self.sequence += 1;
        Ok(sealed.encode())
    }

    /// Renews keys after fewer records, for tests.
    #[cfg(test)]
    pub(super) fn limit_records(&mut self, records: u64) {
        self.records_a_key = records;
    }
}

/// What a record says.
pub(super) enum Said {
    /// Data, as a range of the record.
    Data(Range<usize>),
    /// The peer sends under its next key from now on.
    Renewed {
        /// It wants the same of this side.
        asks: bool,
    },
    /// Nothing that matters.
    Nothing,
    /// The peer sends no more.
    Closed,
}

/// Opens the records that come. Secret: no Debug.
pub(super) struct Opener {
    suite: &'static Tls13CipherSuite,
    schedule: Shared,
    cipher: Option<Box<dyn MessageDecrypter>>,
    /// Of the next record under this key.
    sequence: u64,
    takes_tickets: bool,
}

impl Opener {
    /// Opens a whole record in place.
    ///
    /// # Errors
    /// The record is not the peer's next one, or says what it may not.
    pub(super) fn open(&mut self, record: &mut [u8]) -> Result<Said, Error> {
        let [kind, _, _, _, _, payload @ ..] = record else {
            return Err(InvalidMessage::MessageTooShort.into());
        };
        if *kind != u8::from(ContentType::ApplicationData) {
            return Err(InvalidMessage::UnexpectedMessage("a record without protection").into());
        }
        let sealed = InboundOpaqueMessage::new(
            ContentType::ApplicationData,
            ProtocolVersion::TLSv1_2,
            payload,
        );
        let cipher = self.cipher.as_mut().ok_or(Error::DecryptError)?;
        let plain = cipher.decrypt(sealed, self.sequence)?;
        self.sequence += 1;
        match plain.typ {
            ContentType::ApplicationData => {
                // Ciphers of TLS 1.3 decrypt in place, and cut at the end alone.
                Ok(Said::Data(HEADER..HEADER + plain.payload.len()))
            }
            ContentType::Alert => told(plain.payload),
            ContentType::Handshake if self.takes_tickets && is_tickets(plain.payload) => {
                Ok(Said::Nothing)
            }
            ContentType::Handshake => {
                let asks = asks_for_renewal(plain.payload)?;
                let (sequence, secrets) = lock(&self.schedule).next_to_receive()?;
                self.cipher = decrypter(self.suite, secrets);
                self.sequence = sequence;
                Ok(Said::Renewed { asks })
            }
            _ => Err(InvalidMessage::InvalidContentType.into()),
        }
    }
}

/// What an alert says: in TLS 1.3 all but goodbyes are fatal.
fn told(alert: &[u8]) -> Result<Said, Error> {
    let &[_, description] = alert else {
        return Err(InvalidMessage::MessageTooShort.into());
    };
    match AlertDescription::from(description) {
        AlertDescription::CloseNotify => Ok(Said::Closed),
        // A goodbye follows (RFC 8446, section 6.1).
        AlertDescription::UserCanceled => Ok(Said::Nothing),
        other => Err(Error::AlertReceived(other)),
    }
}

/// Whether a record holds whole `NewSessionTicket`s alone (RFC 8446, section 4.6.1). Our servers give
/// none, but proxies do.
fn is_tickets(mut messages: &[u8]) -> bool {
    const TICKET: u8 = 4;
    if messages.is_empty() {
        return false;
    }
    while let &[TICKET, a, b, c, ref rest @ ..] = messages {
        let length = u32::from_be_bytes([0, a, b, c]) as usize;
        let Some(rest) = rest.get(length..) else {
            return false;
        };
        messages = rest;
    }
    messages.is_empty()
}

/// Whether a `KeyUpdate`, alone in its record, asks for one back. Nothing else may come: nobody asks
/// for a certificate after the handshake.
fn asks_for_renewal(message: &[u8]) -> Result<bool, Error> {
    match message.strip_prefix(&KEY_UPDATE) {
        Some([0]) => Ok(false),
        Some([1]) => Ok(true),
        Some(_) => Err(InvalidMessage::InvalidKeyUpdate.into()),
        None => Err(InvalidMessage::UnexpectedMessage("after the handshake").into()),
    }
}

/// The length of a record by its header, which it includes; none where the header is not all there.
///
/// # Errors
/// The bytes are no TLS.
pub(super) fn record_length(bytes: &[u8]) -> Result<Option<usize>, Error> {
    let &[kind, major, _, high, low, ..] = bytes else {
        return Ok(None);
    };
    if let ContentType::Unknown(_) = ContentType::from(kind) {
        return Err(InvalidMessage::InvalidContentType.into());
    }
    if major != 3 {
        return Err(InvalidMessage::UnknownProtocolVersion.into());
    }
    match HEADER + usize::from(u16::from_be_bytes([high, low])) {
        HEADER => Err(InvalidMessage::InvalidEmptyPayload.into()),
        length if length > RECORD => Err(InvalidMessage::MessageTooLarge.into()),
        length => Ok(Some(length)),
    }
}

/// What to tell the peer of an error in its records.
pub(super) fn alert_for(error: &Error) -> Option<AlertDescription> {
    match error {
        Error::AlertReceived(_) => None,
        Error::DecryptError => Some(AlertDescription::BadRecordMac),
        Error::PeerSentOversizedRecord | Error::InvalidMessage(InvalidMessage::MessageTooLarge) => {
            Some(AlertDescription::RecordOverflow)
        }
        Error::InvalidMessage(InvalidMessage::UnexpectedMessage(_)) => {
            Some(AlertDescription::UnexpectedMessage)
        }
        Error::InvalidMessage(_) => Some(AlertDescription::DecodeError),
        _ => Some(AlertDescription::UnexpectedMessage),
    }
}
