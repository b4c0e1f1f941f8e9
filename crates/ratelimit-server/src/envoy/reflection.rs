//! The reflection services, which tell clients the messages of the other services.

use ratelimit_envoy::proto::FILE_DESCRIPTOR_SET;
use tonic::service::Routes;
use tonic_reflection::server::Builder;

/// Adds the reflection services v1 and v1alpha, which list `services` beside themselves.
///
/// Descriptors of messages that no listed service uses are sent as well if a client asks for them.
pub(super) fn add_reflection(routes: Routes, services: &[&str]) -> Routes {
    let builder = |version: &str| {
        let own = Builder::configure()
            .register_encoded_file_descriptor_set(FILE_DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
            .with_service_name(format!("grpc.reflection.{version}.ServerReflection"));
        let services = services.iter().copied();
        services.fold(own, Builder::with_service_name)
    };
    let v1 = builder("v1").build_v1();
    let v1alpha = builder("v1alpha").build_v1alpha();
    routes
        .add_service(v1.expect("the descriptors were generated"))
        .add_service(v1alpha.expect("the descriptors were generated"))
}
