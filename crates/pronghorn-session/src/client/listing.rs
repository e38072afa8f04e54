//! What a server has for a client.

use super::{
    ConnectOptions,
    handshake::{link, prove, secured},
    part, unless_cancelled,
};
use crate::{
    error::{SessionError, foreign_peer},
    frame::{Kind, MAX_HANDSHAKE},
    link::Link,
    message::{Hello, Listed, Listing, ListingRequest},
};

/// The models that the server at `address` has for this client, in its owner's order. Of `options`
/// the channel and the time limits count.
///
/// # Errors
/// Nobody answers, or the server does not know this client or speaks another version.
pub fn list_models(address: &str, options: &ConnectOptions) -> Result<Vec<Listed>, SessionError> {
    let channel = secured(address, options)?;
    let mut link = link(channel.transport, channel.binding.as_ref(), options)?;
    let listed = prove(&mut link, channel.proof).and_then(|()| ask(&mut link));
    let listed = listed.map_err(|error| unless_cancelled(&options.cancel, error));
    listed.inspect_err(|error| part(&mut link, error))
}

fn ask(link: &mut Link) -> Result<Vec<Listed>, SessionError> {
    link.send(Kind::ListingRequest, ListingRequest.encode())?;
    let mut payload = Vec::new();
    link.receive(&[(Kind::Listing, MAX_HANDSHAKE)], &mut payload)
        .map_err(foreign_peer)?;
    Ok(Listing::decode(&payload)?.models)
}
