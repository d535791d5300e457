//! TLS: whose certificate is believed, and for which name.

use std::{io::Write, sync::Arc, time::Duration};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::{ServerConfig, ServerConnection, StreamOwned, pki_types::PrivateKeyDer};
use ureq::tls::{Certificate, RootCerts};

use super::{
    fetch, open,
    proxied::{proxy, through},
    refusal,
    server::{Ended, Server, ok, read_head, wait_for_close},
};
use crate::common::fetch::{
    FetchPolicy,
    dial::{Dialler, Trust},
};

/// A server for `images.test`, and who vouches for it.
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

/// Where every name is on this host.
fn here(trust: Arc<Trust>) -> Dialler {
    Dialler {
        lookup: |_, port| Ok(vec![([127, 0, 0, 1], port).into()]),
        trust: Some(trust),
    }
}

fn trusting(authority: &[u8]) -> FetchPolicy {
    let roots = RootCerts::Specific(Arc::new(vec![Certificate::from_der(authority).to_owned()]));
    FetchPolicy {
        dialler: here(Trust::new(roots)),
        ..open()
    }
}

#[test]
fn certificates() {
    let (secure, stranger) = (secure(), secure());
    let web = FetchPolicy {
        dialler: here(Trust::new(RootCerts::WebPki)),
        ..open()
    };
    #[rustfmt::skip]
    let cases = [
        ("trusted, right name",  trusting(&secure.authority),   "images.test", None),
        ("trusted, other name",  trusting(&secure.authority),   "other.test",  Some("not valid for name")),
        ("trusted, an address",  trusting(&secure.authority),   "127.0.0.1",   Some("not valid for name")),
        ("of somebody else",     trusting(&stranger.authority), "images.test", Some("invalid peer certificate")),
        ("not of this world",    web,                           "images.test", Some("invalid peer certificate")),
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

/// The name goes along although an address is dialled, through a tunnel too.
#[test]
fn the_name_is_told() {
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

    // The tunnel resolves names itself, and knows only this host's.
    let tunnelled = through(
        trusting(&secure.authority),
        &proxy,
        &[("https_proxy", "http://{proxy}")],
    );
    let error = refusal(&tunnelled, &format!("https://localhost:{port}/"));
    assert!(error.contains("not valid for name"), "{error}");
    assert!(
        proxy
            .next()
            .head
            .starts_with(&format!("CONNECT localhost:{port} "))
    );
}

#[test]
fn plain_and_secure_do_not_mix() {
    let secure = secure();
    let plain = Server::closing(ok(b"pixels"));
    let url = format!("https://images.test:{}/", plain.address.port());
    let error = refusal(&trusting(&secure.authority), &url);
    assert!(error.contains(&url[..url.len() - 1]), "{error}");
}

/// The deadline holds while TLS is being agreed on.
#[test]
fn a_handshake_that_never_ends() {
    let silent = Server::accepting(|mut stream| Ended {
        head: String::new(),
        sent: wait_for_close(&mut stream),
    });
    let secure = secure();
    let policy = FetchPolicy {
        timeout: Some(Duration::from_millis(300)),
        ..trusting(&secure.authority)
    };
    let error = refusal(
        &policy,
        &format!("https://images.test:{}/", silent.address.port()),
    );
    assert!(
        error.ends_with("timed out after 300ms (REQUEST_TIMEOUT)"),
        "{error}"
    );
    silent.next().sent.unwrap();
}
