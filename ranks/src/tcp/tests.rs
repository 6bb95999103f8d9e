use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, Ordering};

use tightrope_core::{Ranks as _, RanksError};

use super::greeting::{CARD, Card, End, HELLO, NONCE, PROOF, Transcript, hello, nonce_of};
use super::*;

const LOCAL: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const LONG: Duration = Duration::from_secs(30);

/// A port that nobody listens at now.
fn port() -> u16 {
    TcpListener::bind((LOCAL, 0)).unwrap().local_addr().unwrap().port()
}

fn meeting(port: u16, secret: &str) -> Meeting {
    let secret = Secret::new(secret.as_bytes());
    let host = LOCAL.to_string();
    Meeting { host, port, listen: None, secret, insecure: false, limit: LONG }
}

/// Runs each rank in a thread of its own; what each returns, in order.
fn on_each<R: Send>(
    count: usize,
    meeting: &Meeting,
    run: impl Fn(Result<Tcp, TcpError>) -> R + Sync,
) -> Vec<R> {
    thread::scope(|scope| {
        let run = &run;
        let start = |rank| scope.spawn(move || run(Tcp::meet((rank, count), meeting, LONG)));
        let started: Vec<_> = (0..count).map(start).collect();
        started.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// Exchanges bytes and checks those that arrive.
fn exchange(ranks: &mut Tcp, length: usize) -> Result<(), RanksError> {
    let (rank, count) = (ranks.rank(), ranks.count());
    let byte = |from: usize, to: usize| (7 * from + to + length) as u8;
    let parts = (0..count).flat_map(|to| vec![byte(rank, to); length]);
    let ticket = ranks.begin_exchange("x", 0..count, parts.collect())?;
    let found = ranks.finish(ticket)?;
    let expected = (0..count).flat_map(|from| vec![byte(from, rank); length]);
    assert!(found == expected.collect::<Vec<u8>>(), "{length} bytes");
    Ok(())
}

#[test]
fn ranks_meet_in_any_order_and_bytes_arrive_as_they_were_sent() {
    for secret in ["", "a secret of the run"] {
        on_each(4, &meeting(port(), secret), |ranks| {
            let mut ranks = ranks.unwrap();
            assert_eq!(ranks.ignored(), Ignored::default());
            for length in [1, 1000, 3_000_000] {
                exchange(&mut ranks, length).unwrap();
            }
        });
    }
}

#[test]
fn a_rank_that_is_gone_is_named_and_so_is_its_reason() {
    on_each(3, &meeting(port(), ""), |ranks| {
        let mut ranks = ranks.unwrap();
        if ranks.rank() == 1 {
            ranks.fail("no space is left");
            return;
        }
        let ticket = ranks.begin_gather("x", vec![1]).unwrap();
        let error = ranks.finish(ticket).unwrap_err();
        assert_eq!(error.rank, Some(1), "{error}");
        assert!(error.reason.contains("no space is left"), "{error}");
    });
}

/// Connects with this port once somebody listens there.
fn guest(port: u16) -> TcpStream {
    let since = Instant::now();
    loop {
        match TcpStream::connect((LOCAL, port)) {
            Ok(stream) => return stream,
            Err(error) => assert!(since.elapsed() < LONG, "{error}"),
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// A greeting as one that isn't a rank makes it up. Returns true if it was taken for a rank.
fn impostor(port: u16, secret: &str, card: Card, host: u32) -> bool {
    let mut stream = guest(port);
    let connecting = [9; NONCE];
    let mut answer = || -> io::Result<[u8; PROOF]> {
        stream.set_read_timeout(Some(LONG))?;
        stream.write_all(&hello(&connecting))?;
        let (mut theirs, mut proof) = ([0; HELLO], [0; PROOF]);
        stream.read_exact(&mut theirs)?;
        let accepting = nonce_of(&theirs).unwrap();
        let transcript = Transcript { connecting, accepting, card, host };
        let secret = Secret::new(secret.as_bytes());
        let mut bytes = vec![];
        bytes.extend(card.rank.to_le_bytes());
        bytes.extend(card.count.to_le_bytes());
        bytes.extend(card.port.to_le_bytes());
        assert_eq!(bytes.len(), CARD);
        bytes.extend(transcript.proof(secret.as_ref(), End::Connecting));
        stream.write_all(&bytes)?;
        stream.read_exact(&mut proof)?;
        Ok(proof)
    };
    answer().is_ok()
}

#[test]
fn impostors_drips_and_silent_clients_are_ignored_and_counted() {
    let place = port();
    let meeting = meeting(place, "a secret of the run");
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        let first = scope.spawn(|| Tcp::meet((0, 3), &meeting, LONG).unwrap());
        // More silent ones than are kept at a time, as they'd be there before any rank.
        let silent: Vec<TcpStream> = (0..300).map(|_| guest(place)).collect();
        scope.spawn(|| {
            let mut drip = guest(place);
            for byte in hello(&[1; NONCE]) {
                if is_done.load(Ordering::Relaxed) || drip.write_all(&[byte]).is_err() {
                    return;
                }
                thread::sleep(Duration::from_millis(100));
            }
        });
        let mut old = guest(place);
        old.write_all(b"tightrp\x01\x01\0\0\0\x12\x34").unwrap();
        for garbage in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0; 4096], &[255; 100]] {
            let _ = guest(place).write_all(garbage);
        }
        let card = |rank, count| Card { rank, count, port: 9 };
        for (secret, card, host) in [
            ("", card(1, 3), 0),
            ("another secret", card(1, 3), 0),
            ("another secret", card(2, 3), 0),
            ("another secret", card(u32::MAX, 3), 0),
            // One who knows the secret, and is no rank that's awaited here.
            ("a secret of the run", card(0, 3), 0),
            ("a secret of the run", card(3, 3), 0),
            ("a secret of the run", card(u32::MAX, 3), 0),
            ("a secret of the run", card(1, 4), 0),
            // A greeting of another rank.
            ("a secret of the run", card(1, 3), 1),
        ] {
            assert!(!impostor(place, secret, card, host), "{secret} {card:?}");
        }
        let since = Instant::now();
        let others = [1, 2].map(|rank| {
            let meeting = &meeting;
            scope.spawn(move || Tcp::meet((rank, 3), meeting, LONG).unwrap())
        });
        let others = others.map(|thread| thread.join().unwrap());
        let first = first.join().unwrap();
        assert!(since.elapsed() < Duration::from_secs(3), "{:?}", since.elapsed());
        is_done.store(true, Ordering::Relaxed);
        let Ignored { strangers, unproved, misplaced } = first.ignored();
        // The old greeting may still be awaited when it's passed over, and the drip may have ended.
        assert!(strangers >= 304 && unproved == 5 && misplaced == 4, "{:?}", first.ignored());
        drop(silent);
        for mut ranks in [first].into_iter().chain(others) {
            scope.spawn(move || exchange(&mut ranks, 1000).unwrap());
        }
    });
}

#[test]
fn a_rank_with_another_secret_is_named_with_it() {
    let place = port();
    let limit = Duration::from_secs(2);
    let of = |secret| Meeting { limit, ..meeting(place, secret) };
    for other in ["", "another secret"] {
        thread::scope(|scope| {
            let first = scope.spawn(|| Tcp::meet((0, 2), &of("a secret"), LONG).err().unwrap());
            let second = scope.spawn(|| Tcp::meet((1, 2), &of(other), LONG).err().unwrap());
            let said = first.join().unwrap().to_string();
            assert!(said.contains("rank 1 didn't come in time; "), "{said}");
            assert!(said.contains("without the secret of the run)"), "{said}");
            assert!(said.contains("other machines don't reach"), "{said}");
            let said = second.join().unwrap().to_string();
            assert!(said.contains("its TIGHTROPE_SECRET is another one"), "{said}");
        });
    }
}

/// One who listens where rank 0 is awaited, and takes every greeting.
#[test]
fn a_false_rank_0_is_refused() {
    let listener = TcpListener::bind((LOCAL, 0)).unwrap();
    let place = listener.local_addr().unwrap().port();
    let is_done = AtomicBool::new(false);
    listener.set_nonblocking(true).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                let Ok((mut stream, _)) = listener.accept() else {
                    thread::sleep(Duration::from_millis(1));
                    continue;
                };
                stream.set_nonblocking(false).unwrap();
                let mut said = [0; HELLO + CARD + PROOF];
                let _ = stream.write_all(&hello(&[3; NONCE]));
                let _ = stream.read_exact(&mut said);
                // The proof of the other end, sent back.
                let _ = stream.write_all(&said[HELLO + CARD..]);
            }
        });
        let limit = Duration::from_secs(1);
        let meeting = Meeting { limit, ..meeting(place, "a secret") };
        let met = Tcp::meet((1, 2), &meeting, LONG).err();
        is_done.store(true, Ordering::Relaxed);
        let said = met.unwrap().to_string();
        assert!(said.contains("doesn't know the secret of the run"), "{said}");
    });
}

#[test]
fn a_listener_that_says_nothing_or_drips_does_not_hold_a_rank() {
    let listener = TcpListener::bind((LOCAL, 0)).unwrap();
    let place = listener.local_addr().unwrap().port();
    let limit = Duration::from_secs(1);
    let since = Instant::now();
    let meeting = Meeting { limit, ..meeting(place, "a secret") };
    let said = Tcp::meet((1, 2), &meeting, LONG).err().unwrap().to_string();
    assert!(said.contains("didn't say all in time"), "{said}");
    assert!(since.elapsed() < 3 * limit, "{:?}", since.elapsed());
}

/// Addresses of this machine that others reach, as far as there are some; and any.
fn open_addresses() -> Vec<IpAddr> {
    let any = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
    let socket = std::net::UdpSocket::bind((any, 0)).unwrap();
    // Nothing is sent: it tells the address of the interface that leads there.
    let own = socket.connect(("192.0.2.1", 9)).and_then(|()| socket.local_addr());
    [Some(any), own.ok().map(|own| own.ip())].into_iter().flatten().collect()
}

#[test]
fn without_a_secret_ranks_meet_at_the_loopback_address_alone() {
    for address in open_addresses().into_iter().filter(|address| !address.is_loopback()) {
        let open = |secret| Meeting { host: address.to_string(), ..meeting(port(), secret) };
        for rank in [0, 1] {
            let since = Instant::now();
            let said = Tcp::meet((rank, 2), &open(""), LONG).err().unwrap().to_string();
            assert!(said.contains(&format!("{address} is no loopback address")), "{said}");
            assert!(said.contains("TIGHTROPE_SECRET") && said.contains("--insecure-ranks"));
            assert!(since.elapsed() < Duration::from_secs(2));
        }
        let insecure = Meeting { insecure: true, ..open("") };
        for meeting in [open("a secret"), insecure] {
            on_each(3, &meeting, |ranks| exchange(&mut ranks.unwrap(), 1000).unwrap());
        }
    }
    // The address to listen at is checked, too.
    let listen = Some(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
    let open = Meeting { listen, ..meeting(port(), "") };
    let said = Tcp::meet((0, 2), &open, LONG).err().unwrap().to_string();
    assert!(said.contains("0.0.0.0 is no loopback address"), "{said}");
    let meeting = Meeting { listen, ..meeting(port(), "a secret") };
    on_each(3, &meeting, |ranks| exchange(&mut ranks.unwrap(), 1000).unwrap());
}

#[test]
fn rank_0_listens_at_the_address_that_was_named() {
    let place = port();
    let meeting = meeting(place, "");
    thread::scope(|scope| {
        let first = scope.spawn(|| Tcp::meet((0, 2), &meeting, LONG).unwrap());
        drop(guest(place));
        for address in open_addresses().into_iter().filter(|address| !address.is_unspecified()) {
            let address = SocketAddr::new(address, place);
            let found = TcpStream::connect_timeout(&address, Duration::from_secs(1));
            assert!(found.is_err(), "it listens at {address}");
        }
        drop((Tcp::meet((1, 2), &meeting, LONG).unwrap(), first.join().unwrap()));
    });
    // An address of documents, which no machine has.
    let meeting = Meeting { host: "192.0.2.1".to_owned(), ..meeting_of("a secret") };
    let said = Tcp::meet((0, 2), &meeting, LONG).err().unwrap().to_string();
    assert!(said.contains("this machine has no such address"), "{said}");
    assert!(said.contains("TIGHTROPE_LISTEN"), "{said}");
}

fn meeting_of(secret: &str) -> Meeting {
    meeting(port(), secret)
}

/// The error of rank 0 after rank 1 has sent these bytes.
fn said_of(bytes: &[u8]) -> RanksError {
    let meeting = meeting_of("");
    thread::scope(|scope| {
        let first = scope.spawn(|| {
            let mut ranks = Tcp::meet((0, 2), &meeting, LONG).unwrap();
            let ticket = ranks.begin_gather("wte", vec![1; 4]).unwrap();
            ranks.finish(ticket).unwrap_err()
        });
        let (streams, _) = meeting.met(1, 2).unwrap();
        let mut stream = streams[0].as_ref().unwrap();
        stream.write_all(bytes).unwrap();
        first.join().unwrap()
    })
}

#[test]
fn lengths_that_nobody_asked_for_are_refused_by_the_name_of_their_rank() {
    let message = |tag: u8, length: u64| [&[tag][..], &length.to_le_bytes()].concat();
    for (tag, length, expected) in [
        (0, 1 << 63, "a message of 9223372036854775808 bytes, where 128 are the most"),
        (0, 5, "a message of 5 bytes instead of 128"),
        (1, 1 << 38, "a message of 274877906944 bytes, where 67108864 are the most"),
        (1, 1 << 63, "a message of 9223372036854775808 bytes, where 67108864 are the most"),
        (1, u64::MAX, "a message of 18446744073709551615 bytes, where"),
        (1, 5, "it sent 5 bytes where 4 are expected"),
        (2, 1 << 63, "a message of 9223372036854775808 bytes, where 1024 are the most"),
        (3, 4, "it sent a message of kind 3, which isn't known"),
    ] {
        let error = said_of(&message(tag, length));
        assert_eq!(error.rank, Some(1), "{error}");
        assert!(error.reason.contains(expected), "{tag} {length}: {error}");
    }
}

/// Bytes of a generator (splitmix64), so that every run tries the same.
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[test]
fn any_bytes_are_read_as_messages_or_refused_within_their_own_length() {
    let mut state = 45;
    for _ in 0..200_000 {
        // Tags and lengths that are nearly right, and bytes of any kind after them.
        let length = match random(&mut state) % 4 {
            0 => [128, 1024, 4, 0, 64 << 20][(random(&mut state) % 5) as usize],
            1 => 1 << (random(&mut state) % 64),
            2 => random(&mut state) % 2000,
            _ => random(&mut state),
        };
        let mut bytes = vec![(random(&mut state) % 4) as u8];
        bytes.extend(length.to_le_bytes());
        bytes.extend((0..random(&mut state) % 200).flat_map(|_| random(&mut state).to_le_bytes()));
        bytes.truncate((random(&mut state) % 1700) as usize);
        let sent = bytes.len();
        let inflow = Inflow::default();
        inflow.ask(Tag::Data, 0, 4);
        let mut from = &bytes[..];
        while let Ok(Some((tag, message))) = message(&mut from, &inflow) {
            assert!(message.len() < sent && message.capacity() <= 2 * UNASKED);
            let _ = match tag {
                Tag::Header => crate::message::Header::from_bytes(&message).map(|_| ()),
                Tag::Data => Ok(()),
                Tag::Control => crate::message::Control::from_bytes(&message).map(|_| ()),
            };
        }
    }
}

#[test]
fn a_list_that_is_too_long_is_refused() {
    let meeting = meeting_of("");
    let listener = TcpListener::bind((LOCAL, meeting.port)).unwrap();
    thread::scope(|scope| {
        let other = scope.spawn(|| Tcp::meet((1, 3), &meeting, LONG).err().unwrap().to_string());
        let (mut stream, _) = listener.accept().unwrap();
        let accepting = [4; NONCE];
        stream.write_all(&hello(&accepting)).unwrap();
        let mut said = [0; HELLO + CARD + PROOF];
        stream.read_exact(&mut said).unwrap();
        let card = Card::from_bytes(said[HELLO..HELLO + CARD].try_into().unwrap());
        let connecting = nonce_of(&said[..HELLO]).unwrap();
        let transcript = Transcript { connecting, accepting, card, host: 0 };
        stream.write_all(&transcript.proof(None, End::Accepting)).unwrap();
        stream.write_all(&u32::MAX.to_le_bytes()).unwrap();
        let said = other.join().unwrap();
        assert!(said.contains("rank 0 announced 4294967295 bytes, where 192 are"), "{said}");
    });
}
