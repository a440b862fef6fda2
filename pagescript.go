package cart

// pageScript is the script of the page of GET /workers. It has no template literals, for it stands between backquotes here.
const pageScript = `
'use strict';
(function () {
  var every = 1000, patience = 5000, minute = 60;
  var samples = [], whole = false, paused = false, failing = 0, timer = 0, asked = null;
  var byId = function (id) { return document.getElementById(id); };

  // --- what is shown is text, never markup

  function text(element, value) {
    value = String(value);
    if (element.textContent !== value) element.textContent = value;
    return element;
  }
  function add(parent, tag, className, value) {
    var element = document.createElement(tag);
    if (className) element.className = className;
    if (value !== undefined) element.textContent = value;
    parent.appendChild(element);
    return element;
  }
  function bar(parent) { return add(add(parent, 'span', 'bar'), 'i').parentNode; }
  function fill(element, share, kind) {
    element.className = 'bar' + (kind ? ' ' + kind : '');
    element.firstChild.style.width = Math.round(1000 * Math.max(0, Math.min(1, share || 0))) / 10 + '%';
  }
  // entries brings a list to n entries; make makes one.
  function entries(list, n, make) {
    while (list.children.length > n) list.removeChild(list.lastChild);
    while (list.children.length < n) make(list);
    return list.children;
  }

  // --- numbers

  function count(n) {
    if (n >= 1e9) return (n / 1e9).toFixed(1) + ' G';
    if (n >= 1e6) return (n / 1e6).toFixed(1) + ' M';
    if (n >= 1e4) return (n / 1e3).toFixed(0) + ' k';
    return String(Math.round(n));
  }
  function bytes(n) {
    if (n >= 1073741824) return (n / 1073741824).toFixed(1) + ' GiB';
    if (n >= 1048576) return (n / 1048576).toFixed(n < 10485760 ? 1 : 0) + ' MiB';
    return Math.round(n / 1024) + ' KiB';
  }
  function percent(share) { return isFinite(share) ? Math.round(100 * share) + ' %' : '–'; }
  function seconds(s) {
    if (!isFinite(s)) return '–';
    if (s < 0.001) return Math.round(s * 1e6) + ' µs';
    if (s < 0.01) return (s * 1e3).toFixed(1) + ' ms';
    if (s < 1) return Math.round(s * 1e3) + ' ms';
    return s.toFixed(s < 10 ? 1 : 0) + ' s';
  }
  function ago(s) {
    if (s < 100) return Math.max(0, Math.round(s)) + ' s';
    if (s < 6000) return Math.round(s / 60) + ' min';
    if (s < 172800) return Math.round(s / 3600) + ' h';
    return Math.round(s / 86400) + ' d';
  }
  function total(counts) { return Object.keys(counts).reduce(function (sum, key) { return sum + counts[key]; }, 0); }

  // --- what happened between two answers; with no earlier one, since the start

  function moreOf(now, then) {
    var out = {};
    Object.keys(now).forEach(function (key) { out[key] = now[key] - ((then || {})[key] || 0); });
    return out;
  }
  function moreHistogram(now, then) {
    return {
      bounds: now.bounds, count: now.count - (then ? then.count : 0), sum: now.sum - (then ? then.sum : 0),
      counts: now.counts.map(function (n, i) { return n - (then ? then.counts[i] : 0); })
    };
  }
  function join(a, b) {
    var counts = a.counts.map(function (n, i) { return n + b.counts[i]; });
    return { bounds: a.bounds, count: a.count + b.count, sum: a.sum + b.sum, counts: counts };
  }
  // quantile guesses within the range that the rank falls into, as Prometheus does.
  function quantile(h, q) {
    if (!h.count) return NaN;
    var rank = q * h.count, below = 0;
    for (var i = 0; i < h.bounds.length; i++) {
      if (below + h.counts[i] >= rank && h.counts[i] > 0) {
        var low = i ? h.bounds[i - 1] : 0;
        return low + (h.bounds[i] - low) * (rank - below) / h.counts[i];
      }
      below += h.counts[i];
    }
    return h.bounds[h.bounds.length - 1];
  }
  function between(now, then) {
    var before = {};
    if (then) then.workers.forEach(function (w) { before[w.url] = w; });
    return {
      state: now, seconds: then ? Math.max(0.001, now.now - then.now) : 0, refused: moreOf(now.refused, then && then.refused),
      reasons: moreOf(now.reasons, then && then.reasons), retries: now.retries - (then ? then.retries : 0),
      gone: now.clientClosed - (then ? then.clientClosed : 0),
      known: moreHistogram(now.knownRatio, then && then.knownRatio),
      deciding: moreHistogram(now.decisionSeconds, then && then.decisionSeconds),
      characters: moreOf(now.characters, then && then.characters),
      workers: now.workers.map(function (w) {
        var old = before[w.url];
        if (old && old.requests > w.requests) old = null; // removed and back again
        var reasons = moreOf(w.reasons, old && old.reasons);
        return {
          state: w, reasons: reasons, requests: total(reasons), hits: reasons.cache_hit || 0,
          cached: moreOf(w.cachedTokens, old && old.cachedTokens),
          hit: moreHistogram(w.firstByteSeconds.hit, old && old.firstByteSeconds.hit),
          other: moreHistogram(w.firstByteSeconds.other, old && old.firstByteSeconds.other)
        };
      })
    };
  }

  // --- the verdict: is affinity working, and if not, why

  function sum(d, part) {
    var all = d.workers.reduce(function (h, w) { return h ? join(h, w[part]) : w[part]; }, null);
    return all || { bounds: [], counts: [], count: 0 };
  }
  function judge(d) {
    var s = d.state, out = [], limits = s.thresholds, listed = s.workers.length;
    var say = function (kind, words) { out.push({ kind: kind, words: words }); };
    var refused = total(d.refused);
    var down = s.workers.filter(function (w) { return !w.healthy && !w.draining; });
    var open = s.workers.filter(function (w) { return w.breaker !== 'closed' && w.healthy && !w.draining; });
    if (s.discovery && s.discovery.state === 'failing') {
      say(listed ? 'warn' : 'bad', 'Discovery fails: ' + s.discovery.error + '. ' +
        (listed ? 'The last known replicas stay.' : 'No replica is known yet.'));
    } else if (s.discovery && s.discovery.state === 'starting' && !listed) {
      say('warn', 'Waiting for the first answer of ' + s.discovery.source + '.');
    }
    if (!s.usable) say('bad', 'No replica is usable: requests are refused.');
    if (refused) {
      var worst = Object.keys(d.refused).sort(function (a, b) { return d.refused[b] - d.refused[a]; })[0];
      say('bad', count(refused) + (refused === 1 ? ' request was' : ' requests were') + ' refused, mostly ' + worst + '.');
    }
    if (down.length) say('bad', names(down) + (down.length > 1 ? ' are' : ' is') + ' down: ' + down[0].why);
    if (open.length) say('warn', names(open) + ' failed too often: circuit breaker ' + open[0].breaker + '.');

    var r = d.reasons, hits = r.cache_hit || 0, busy = r.hit_overloaded || 0, missed = r.miss || 0, blind = r.empty_text || 0;
    var chosen = hits + busy + missed + blind + (r.placed || 0), tuned = s.policy === 'threshold';
    if (s.shadow) {
      say('ok', 'The policy ' + s.policy + ' only watches: of all prompt text ' + percent(s.shadow.known / s.shadow.total) +
        ' was known where it went, ' + percent(s.shadow.couldKnow / s.shadow.total) + ' where the policy would have sent it.');
      return out;
    }
    if (!tuned && s.policy !== 'cost') return out;
    var before = out.length; // what follows is about affinity
    if (chosen < 20) {
      if (!out.length) say('ok', 'Too few requests to judge by: ' + chosen + ' routed by prompt.');
      return out;
    }
    var known = d.characters.known / d.characters.prompt, fast = sum(d, 'hit'), slow = sum(d, 'other');
    if (blind > chosen / 4) say('warn', percent(blind / chosen) + ' of the requests have no prompt that CART can read.');
    var hot = busiest(d), part = hot ? hot.requests / total(r) : 0;
    var uneven = listed > 1 && part > Math.min(0.9, 2 / listed);
    if (busy > chosen / 10) {
      say('warn', percent(busy / chosen) + ' of the requests left the replica that knows their prompt, because it was ' +
        'too busy. One prompt or tenant is hot.');
    } else if (uneven) {
      say('warn', hot.state.url + ' gets ' + percent(part) + ' of the requests: one prompt or tenant is hot. ' +
        (tuned ? 'A lower cache.balanceAbsThreshold spreads it.' : ''));
    }
    if (tuned && missed > chosen / 2 && known >= 0.15) {
      say('warn', percent(missed / chosen) + ' of the requests were sent by load alone, though half of the prompts are ' +
        'known to ' + percent(quantile(d.known, 0.5)) + ' or more: cache.threshold ' + limits.threshold + ' is too high.');
    } else if (known < 0.1) {
      say('warn', 'Only ' + percent(known) + ' of the prompt text was seen before: prompts share no beginning, or something ' +
        'changes at their head.');
    }
    if (!uneven) cold(d, fast, slow, say);
    if (out.length === before && hits < chosen / 2) {
      say('warn', 'Only ' + percent(hits / chosen) + ' of the requests went to a replica that knows their prompt; ' +
        percent(known) + ' of all prompt text was known somewhere.');
    } else if (out.length === before) {
      say('ok', 'Affinity works: ' + percent(hits / chosen) + ' of the requests went to a replica that knows their prompt; ' +
        percent(d.characters.matched / d.characters.prompt) + ' of all prompt text was known where it went.');
    }
    return out;
  }
  // cold looks for hits that are as slow as if nothing were cached.
  function cold(d, fast, slow, say) {
    var usual = quantile(fast, 0.5), without = quantile(slow, 0.5);
    if (fast.count >= 20 && slow.count >= 5 && usual > 0.02 && usual > 0.4 * without) {
      say('warn', 'Hits begin to answer after ' + seconds(usual) + ', others after ' + seconds(without) +
        ': the replicas no longer hold what they were sent. Their caches are too small, or they were restarted.');
      return;
    }
    var fair = d.workers.reduce(function (n, w) { return n + w.requests; }, 0) / d.workers.length;
    d.workers.forEach(function (w) {
      if (w.requests > 1.5 * fair) return; // it is busy, which is another matter
      var rest = d.workers.filter(function (o) { return o !== w; });
      var others = rest.reduce(function (h, o) { return h ? join(h, o.hit) : o.hit; }, null);
      if (!others || w.hit.count < 10 || others.count < 10) return;
      var mine = w.hit.sum / w.hit.count, theirs = others.sum / others.count;
      if (mine > 0.05 && mine > 2.5 * theirs) {
        say('warn', 'Hits on ' + w.state.url + ' begin to answer after ' + seconds(mine) + ' on average, elsewhere after ' +
          seconds(theirs) + ': it has lost its cache (a restart?), or is slower or busier.');
      }
    });
  }
  function busiest(d) { return d.workers.reduce(function (a, b) { return a && a.requests >= b.requests ? a : b; }, null); }
  function names(list) {
    if (list.length > 2) return list.length + ' replicas';
    return list.map(function (w) { return w.url; }).join(' and ');
  }

  // --- the parts of the page

  function showVerdict(d) {
    var all = judge(d), kind = 'ok';
    all.forEach(function (v) { if (v.kind === 'bad' || kind === 'ok') kind = v.kind; });
    var box = byId('verdict');
    box.className = 'verdict ' + kind;
    var lines = entries(box, all.length, function (list) { add(list, 'p'); });
    all.forEach(function (v, i) { text(lines[i], v.words).className = v.kind; });
  }
  function showTiles(d) {
    var s = d.state, r = d.reasons, n = total(r), hits = r.cache_hit || 0;
    var chosen = hits + (r.hit_overloaded || 0) + (r.miss || 0) + (r.placed || 0) + (r.empty_text || 0);
    var fast = sum(d, 'hit'), slow = sum(d, 'other'), refused = total(d.refused);
    var full = Math.max(s.tree.nodes / s.tree.maxNodes, s.tree.bytes / s.tree.maxBytes);
    var list = [
      ['requests', d.seconds ? (n / d.seconds).toFixed(n / d.seconds < 10 ? 1 : 0) + ' /s' : count(n), count(n) + ' requests, ' +
        count(d.retries) + ' retries'],
      ['hits', chosen ? percent(hits / chosen) : '–', percent(d.characters.matched / d.characters.prompt) + ' of text matched'],
      ['first byte, median', seconds(quantile(fast.count ? join(fast, slow) : slow, 0.5)), 'hits ' +
        seconds(quantile(fast, 0.5)) +
        ', others ' + seconds(quantile(slow, 0.5))],
      ['decision, median', seconds(quantile(d.deciding, 0.5)), '99 of 100 within ' + seconds(quantile(d.deciding, 0.99))],
      ['refused', count(refused), count(d.gone) + ' clients left early'],
      ['tree', percent(full) + ' full', bytes(s.tree.bytes) + ' of ' + bytes(s.tree.maxBytes) + ', ' + count(s.tree.nodes) +
        ' nodes of ' + count(s.tree.maxNodes)]
    ];
    var tiles = entries(byId('tiles'), list.length, function (parent) {
      var tile = add(parent, 'div', 'tile');
      add(tile, 'span');
      add(tile, 'b');
      add(tile, 'span');
      bar(tile).hidden = true;
    });
    list.forEach(function (row, i) {
      for (var k = 0; k < 3; k++) text(tiles[i].children[k], row[k]);
      tiles[i].title = row[2];
    });
    var tree = tiles[5].lastChild;
    tree.hidden = false;
    fill(tree, full, full > 0.95 ? 'warn' : '');
  }
  var columns = ['replica', 'health', 'breaker', 'load', 'share of requests', 'hits', 'first byte', 'claims'];
  function makeRow(body) {
    var row = add(body, 'tr');
    columns.forEach(function (name, i) {
      var cell = add(row, i ? 'td' : 'th', i > 4 ? 'n' : '');
      if (!i) { cell.scope = 'row'; cell.className = 'url'; }
      cell.setAttribute('data-name', name);
      if (i === 1) { add(cell, 'span', 'state'); add(cell, 'div', 'why'); }
      if (i === 2) { add(cell, 'span', 'state'); add(cell, 'div', 'why'); }
      if (i === 3 || i === 4) { var pair = add(cell, 'div', 'with'); bar(pair); add(pair, 'span'); }
      if (i > 4) { add(cell, 'span'); add(cell, 'div', 'why'); }
    });
  }
  function showReplicas(d) {
    var all = d.workers.reduce(function (sum, w) { return sum + w.requests; }, 0);
    byId('none').hidden = d.workers.length > 0;
    var rows = entries(byId('replicas').tBodies[0], d.workers.length, makeRow);
    d.workers.forEach(function (w, i) {
      var s = w.state, cells = rows[i].cells;
      rows[i].className = s.draining ? 'gone' : s.healthy ? '' : 'down';
      text(cells[0], s.url);
      var state = ['up', ''];
      if (s.draining) state = ['draining', 'warn'];
      else if (!s.healthy) state = ['down', 'bad'];
      else if (s.pushedBack) state = ['pushed back', 'warn'];
      text(cells[1].children[0], state[0]).className = 'state ' + state[1];
      text(cells[1].children[1], (s.why ? s.why + ' · ' : '') + 'for ' + ago(d.state.now - s.since));
      text(cells[2].children[0], s.breaker).className = 'state ' + (s.breaker === 'closed' ? '' : 'bad');
      text(cells[2].children[1], s.failures ? count(s.failures) + ' failures' : '');
      var used = s.load / s.maxLoad;
      fill(cells[3].firstChild.children[0], used, used >= 1 ? 'bad' : used > 0.8 ? 'warn' : '');
      text(cells[3].firstChild.children[1], s.load + ' / ' + s.maxLoad);
      fill(cells[4].firstChild.children[0], all ? w.requests / all : 0);
      text(cells[4].firstChild.children[1], all ? percent(w.requests / all) : '–');
      text(cells[5].children[0], w.requests ? percent(w.hits / w.requests) : '–');
      text(cells[5].children[1], count(w.hits) + ' of ' + count(w.requests));
      text(cells[6].children[0], seconds(quantile(join(w.hit, w.other), 0.5)));
      text(cells[6].children[1], w.hit.count && w.other.count ?
        'hits ' + seconds(quantile(w.hit, 0.5)) + ', others ' + seconds(quantile(w.other, 0.5)) : '');
      text(cells[7].children[0], count(s.claims));
      text(cells[7].children[1], 'characters');
    });
  }
  var meanings = {
    cache_hit: 'went to a replica that knows the prompt', hit_overloaded: 'left the replica that knows the prompt: too busy',
    miss: 'too little of the prompt is known anywhere: least load, or least cost',
    placed: 'a new conversation, by the hash of its beginning',
    shadow: 'the policy only watches: least load', empty_text: 'no prompt made out: least load',
    only_one: 'one usable replica, no choice', retry: 'another replica had failed', passthrough: 'not a routed path: least load'
  };
  function showReasons(d) {
    var all = [], sum = 0;
    Object.keys(d.reasons).forEach(function (why) {
      all.push([why, d.reasons[why], meanings[why] || '']);
      sum += d.reasons[why];
    });
    Object.keys(d.refused).forEach(function (why) { all.push(['refused: ' + why, d.refused[why], 'answered by CART itself']); });
    all = all.filter(function (one) { return one[1] > 0; }).sort(function (a, b) { return b[1] - a[1]; });
    var lines = entries(byId('reasons'), all.length, function (list) {
      var line = add(list, 'li');
      add(line, 'span');
      bar(line);
      add(line, 'span');
    });
    all.forEach(function (one, i) {
      text(lines[i].children[0], one[0]);
      lines[i].title = one[0] + ': ' + one[2];
      fill(lines[i].children[1], one[1] / (sum || 1), one[0].indexOf('refused') === 0 ? 'bad' : '');
      text(lines[i].children[2], count(one[1]) + ' · ' + percent(one[1] / (sum || 1)));
    });
  }
  function showKnown(d) {
    var limit = d.state.thresholds.threshold, h = d.known, most = Math.max.apply(null, h.counts) || 1, beyond = 0;
    var columns = entries(byId('known'), h.bounds.length, function (list) {
      var one = add(list, 'div');
      add(one, 'i');
      add(one, 'span');
    });
    h.bounds.forEach(function (bound, i) {
      var enough = bound > limit + 1e-9;
      if (enough) beyond += h.counts[i];
      columns[i].className = enough ? 'enough' : '';
      columns[i].firstChild.style.height = Math.round(100 * h.counts[i] / most) + '%';
      text(columns[i].children[1], i % 2 ? '' : Math.round(100 * bound) + '%');
    });
    var words = percent(beyond / h.count) + ' of ' + count(h.count) + ' prompts above cache.threshold ' + limit + '; ' +
      percent(d.characters.known / d.characters.prompt) + ' of their text known';
    var told = d.workers.reduce(function (all, w) {
      var c = w.cached;
      return { prompt: all.prompt + c.prompt, expected: all.expected + c.predicted, cached: all.cached + c.actual };
    }, { prompt: 0, expected: 0, cached: 0 });
    if (told.prompt) {
      words += '; of the tokens in answers ' + percent(told.cached / told.prompt) + ' were cached, ' +
        percent(told.expected / told.prompt) + ' expected';
    }
    text(byId('knownText'), h.count ? words : 'no prompts yet');
  }
  function showLast(d) {
    var list = d.state.lastDecisions.slice(0, 9);
    var lines = entries(byId('last'), list.length, function (parent) {
      var line = add(parent, 'li');
      for (var i = 0; i < 4; i++) add(line, 'span');
    });
    list.forEach(function (one, i) {
      var cells = lines[i].children;
      text(cells[0], ago(d.state.now - one.at));
      text(cells[1], one.reason);
      text(cells[2], one.replica.replace(/^https?:\/\//, '')).title = one.replica;
      text(cells[3], (one.total ? percent(one.matched / one.total) + ' of ' + count(one.total) : '') + ' · load ' + one.load);
    });
  }
  function showHead(d) {
    var s = d.state, listed = s.workers.filter(function (w) { return !w.draining; }).length;
    document.title = (s.usable < listed || !s.usable ? '(!) ' : '') + 'CART ' + s.pool;
    text(byId('pool'), s.pool);
    text(byId('policy'), s.policy);
    text(byId('usable'), s.usable + ' of ' + listed + ' usable');
  }

  // --- asking, again and again

  function show() {
    var now = samples[samples.length - 1];
    if (!now) return;
    var then = whole || samples.length < 2 ? null : samples[0];
    var d = between(now, then);
    [showHead, showVerdict, showTiles, showReplicas, showReasons, showKnown, showLast].forEach(function (part) { part(d); });
    showAge(d);
  }
  function showAge(d) {
    document.body.className = failing ? 'stale' : paused ? 'paused' : '';
    var span = d && (d.seconds ? 'last ' + Math.round(d.seconds) + ' s' : 'since start');
    text(byId('age'), failing ? 'no answer from the router' : paused ? 'paused' : span ? 'live · ' + span : 'asking');
  }
  function take(state) {
    var last = samples[samples.length - 1];
    if (last && (total(state.reasons) < total(last.reasons) || state.pool !== last.pool)) samples = []; // another life
    samples.push(state);
    while (samples.length > 2 && state.now - samples[1].now >= minute) samples.shift();
    failing = 0;
    show();
  }
  function ask() {
    timer = 0;
    if (paused || document.hidden) return;
    var giveUp = new AbortController(), late = setTimeout(function () { giveUp.abort(); }, patience);
    asked = giveUp;
    fetch(location.pathname, { headers: { Accept: 'application/json' }, cache: 'no-store', signal: giveUp.signal })
      .then(function (answer) {
        if (!answer.ok) throw new Error('status ' + answer.status);
        return answer.json();
      })
      .then(take)
      .catch(function () { failing++; showAge(); })
      .then(function () {
        clearTimeout(late);
        if (asked === giveUp) {
          asked = null;
          if (!timer) timer = setTimeout(ask, every);
        }
      });
  }
  function wake() { if (!timer && !asked) ask(); }
  function press(button, on) { button.setAttribute('aria-pressed', on); }
  function togglePause() {
    paused = !paused;
    press(byId('pause'), paused);
    if (paused) { clearTimeout(timer); timer = 0; show(); } else wake();
  }
  function toggleSpan() { whole = !whole; press(byId('span'), whole); show(); }
  byId('pause').addEventListener('click', togglePause);
  byId('span').addEventListener('click', toggleSpan);
  document.addEventListener('visibilitychange', wake);
  document.addEventListener('keydown', function (event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === 'p') togglePause();
    if (event.key === 's') toggleSpan();
  });
  ask();
})();
`
