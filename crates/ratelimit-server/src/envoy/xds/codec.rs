//! The messages of a stream.

use bytes::{Buf as _, Bytes};
use prost::Message as _;
use ratelimit_envoy::proto::envoy::service::discovery::v3::DiscoveryRequest;
use tonic::{
    Status,
    codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder},
};

/// Encodes requests and leaves responses as bytes: decoding one of some megabytes takes longer than a task of the runtime
/// may take.
pub(super) struct DiscoveryCodec;

/// The encoder of [`DiscoveryCodec`].
pub(super) struct RequestEncoder;

/// The decoder of [`DiscoveryCodec`].
pub(super) struct ResponseBytes;

impl Codec for DiscoveryCodec {
    type Encode = DiscoveryRequest;
    type Decode = Bytes;
    type Encoder = RequestEncoder;
    type Decoder = ResponseBytes;

    fn encoder(&mut self) -> RequestEncoder {
        RequestEncoder
    }

    fn decoder(&mut self) -> ResponseBytes {
        ResponseBytes
    }
}

impl Encoder for RequestEncoder {
    type Item = DiscoveryRequest;
    type Error = Status;

    fn encode(&mut self, request: DiscoveryRequest, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        let encoded = request.encode(to);
        encoded.map_err(|why| Status::internal(why.to_string()))
    }
}

impl Decoder for ResponseBytes {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        let length = from.remaining();
        Ok(Some(from.copy_to_bytes(length)))
    }
}
