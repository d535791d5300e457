//! TLS: which certificates are trusted, and for which names.

use std::{io::Write, sync::Arc, time::Duration};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::{ServerConfig, ServerConnection, StreamOwned, pki_types::PrivateKeyDer};
use ureq::tls::{Certificate, RootCerts};

use super::{
    error_of, fetch, open,
    proxied::{proxy, through},
    server::{Ended, Server, ok, read_head, wait_for_close},
};
use crate::common::fetch::{
    FetchPolicy,
    dial::{Dialler, Trust},
};

/// A TLS server for `images.test`, and the certificate of its authority.
struct Secure {
    server: Server,
    authority: Vec<u8>,
}

fn secure() -> Secure {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let leaf = CertificateParams::new(vec!["images.test".to_owned()])
        .unwrap()
        .signed_by(&key, &issuer)
        .unwrap();
    let config =
        ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(
                vec![leaf.der().clone()],
                PrivateKeyDer::Pkcs8(key.serialize_der().into()),
            )
            .unwrap();
    let config = Arc::new(config);
    let server = Server::accepting(move |stream| {
        let mut stream = StreamOwned::new(ServerConnection::new(config.clone()).unwrap(), stream);
        let head = read_head(&mut stream);
        let name = stream.conn.server_name().unwrap_or_default().to_owned();
        let sent = stream
            .write_all(&ok(b"pixels"))
            .and_then(|()| stream.flush());
        Ended {
            head: format!("{name}\r\n{head}"),
            sent,
        }
    });
    Secure {
        server,
        authority: issuer.der().to_vec(),
    }
}

/// A dialler that resolves every name to this host.
fn loopback(trust: Arc<Trust>) -> Dialler {
    Dialler {
        lookup: |_, port| Ok(vec![([127, 0, 0, 1], port).into()]),
        trust: Some(trust),
    }
}

fn trusting(authority: &[u8]) -> FetchPolicy {
    let roots = RootCerts::Specific(Arc::new(vec![Certificate::from_der(authority).to_owned()]));
    FetchPolicy {
        dialler: loopback(Trust::new(roots)),
        ..open()
    }
}

#[test]
fn certificates_must_be_trusted_and_match_the_name() {
    let (secure, other) = (secure(), secure());
    let web = FetchPolicy {
        dialler: loopback(Trust::new(RootCerts::WebPki)),
        ..open()
    };
    #[rustfmt::skip]
    let cases = [
        ("trusted, right name",  trusting(&secure.authority),   "images.test", None),
        ("trusted, other name",  trusting(&secure.authority),   "other.test",  Some("not valid for name")),
        ("trusted, an address",  trusting(&secure.authority),   "127.0.0.1",   Some("not valid for name")),
        ("other authority",      trusting(&other.authority)   , "images.test", Some("invalid peer certificate")),
        ("compiled-in roots",    web,                           "images.test", Some("invalid peer certificate")),
    ];
    for (name, policy, host, expected) in cases {
        let got = fetch(
            &policy,
            &format!("https://{host}:{}/", secure.server.address.port()),
        );
        match expected {
            None => assert_eq!(Ok(b"pixels".to_vec()), got, "{name}"),
            Some(words) => {
                let error = got.expect_err(name);
                assert!(error.contains(words), "{name}: {error}");
            }
        }
    }
}

/// The client dials an address but sends the name, also through a tunnel.
#[test]
fn the_name_is_sent_and_verified() {
    let (secure, proxy) = (secure(), proxy());
    let port = secure.server.address.port();
    let url = format!("https://images.test:{port}/");
    fetch(&trusting(&secure.authority), &url).unwrap();
    let head = secure.server.next().head.to_lowercase();
    assert!(head.starts_with("images.test\r\nget / "), "{head}");
    assert!(
        head.contains(&format!("host: images.test:{port}\r\n")),
        "{head}"
    );

    // The proxy resolves the name itself, and can resolve only `localhost`.
    let tunnelled = through(
        trusting(&secure.authority),
        &proxy,
        &[("https_proxy", "http://{proxy}")],
    );
    let error = error_of(&tunnelled, &format!("https://localhost:{port}/"));
    assert!(error.contains("not valid for name"), "{error}");
    assert!(
        proxy
            .next()
            .head
            .starts_with(&format!("CONNECT localhost:{port} "))
    );
}

#[test]
fn https_to_a_plain_server_fails() {
    let secure = secure();
    let plain = Server::closing(ok(b"pixels"));
    let url = format!("https://images.test:{}/", plain.address.port());
    let error = error_of(&trusting(&secure.authority), &url);
    assert!(error.contains(&url[..url.len() - 1]), "{error}");
}

/// The deadline also applies to the TLS handshake.
#[test]
fn an_endless_handshake_times_out() {
    let silent = Server::accepting(|mut stream| Ended {
        head: String::new(),
        sent: wait_for_close(&mut stream),
    });
    let secure = secure();
    let policy = FetchPolicy {
        timeout: Some(Duration::from_millis(300)),
        ..trusting(&secure.authority)
    };
    let error = error_of(
        &policy,
        &format!("https://images.test:{}/", silent.address.port()),
    );
    assert!(
        error.ends_with("timed out after 300ms (REQUEST_TIMEOUT)"),
        "{error}"
    );
    silent.next().sent.unwrap();
}
