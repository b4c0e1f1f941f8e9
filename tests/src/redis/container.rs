//! A redis in a container, where an engine runs.

use testcontainers::{
    ContainerAsync, GenericImage,
    core::{IntoContainerPort as _, WaitFor},
    runners::AsyncRunner as _,
};

/// Starts a container, and tells the address of the server in it.
///
/// The image is the official one, or what `RATELIMIT_TEST_REDIS_IMAGE` names as `name:tag`.
pub(super) async fn start() -> (ContainerAsync<GenericImage>, String) {
    let image = std::env::var("RATELIMIT_TEST_REDIS_IMAGE");
    let image = image.unwrap_or_else(|_| "redis:7-alpine".to_owned());
    let (name, tag) = image.split_once(':').unwrap_or((&image, "latest"));
    let container = GenericImage::new(name, tag)
        .with_exposed_port(6379.tcp())
        .with_wait_for(WaitFor::message_on_stdout("Ready to accept connections"))
        .start()
        .await
        .expect("a container engine that can run redis");
    let host = container.get_host().await.expect("the container's host");
    let port = container
        .get_host_port_ipv4(6379)
        .await
        .expect("the container's port");
    let url = format!("redis://{host}:{port}");
    (container, url)
}
