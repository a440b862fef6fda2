package cart

import (
	"bytes"
	"hash/crc32"
	"sort"
	"strings"
	"time"
)

// decideLoop serves one exchange after another: see keyLoop for why it is one long function. It holds the pool's lock from
// the candidates to the lesson for the tree, so that a decision sees one state.
func decideLoop(state *loopState) {
	var ex *exchange
	var p *pool
	var r *replica
	var a *attempt
	var t *tree
	var nd, held, leaf, part *node
	var path []*node
	var depth []int
	var one claim
	var cs []candidate
	var in *prompt
	var own *age
	var set *settings
	var owner *worker
	var loads []byte
	var rank, top byte
	var seed, place, hash, best uint64
	var w *wholeQueue
	var now, stamp, left, idle int64
	var span int32
	var pressure, worth float64
	var jobs = state.jobs
	var given = state.op
	var op, grade, g, i, j, k, n, id, at, end, low, high, mid, load, fresh, before, ties, start, to int
	var least, first, match, matched, holder int
	var full, allowed, routed, keyed, quick, costs bool
	var why, key, label, rest, only string
	var took time.Duration
	var h *histogram
	var sums *prompts
	for {
		ex = <-jobs
		state.ex = ex
		p = ex.pool
		key = ex.key
		op = given
		if op == opAny {
			op = ex.op
		} else {
			state.locked = true // the lock came with the job
		}
		if op == opEnd {
			ex.cancel()
			if ex.timer != nil {
				ex.timer.Stop()
			}
		}
		if given == opAny {
			p.mu.Lock()
			state.locked = true
		}
		t = p.tree
		quick = false
		costs = false
		if op == opChoose {
			now = ex.at
			if now == 0 {
				now = time.Now().UnixNano()
			}
			routed = ex.endpoint != endpointOther
			keyed = routed && key != ""
			set = ex.set
			seed = p.seed*6364136223846793005 + 1442695040888963407
			p.seed = seed
			quick = ex.quick
			only = ""
			if p.partial != nil && routed {
				only = partialModel(p, ex.space)
				quick = quick && only == ""
			}
			if quick {
				if now >= p.rankedUntil {
					p.rank(now)
					quick = now < p.rankedUntil
				}
				least = p.least
				if least == mostRanked {
					quick = false
				}
				if set.costs {
					costs = quick && keyed
					quick = false
				}
			}
			loads = p.loads
			in = p.in
		} else if op == opLearn {
			// The request is on its way, so nothing is read here that its own goroutine may write.
			a = ex.chosen
			r = a.replica
			now = a.at
			took = ex.took
			routed = true
			keyed = true
		} else if op <= opEnd {
			a = ex.attempt
			r = a.replica
			r.load--
			p.running--
			// The rank follows: see there.
			if r.ranked {
				loads = p.loads
				at = r.place
				rank = loads[at]
				if rank < mostRanked {
					loads[at]--
					if p.least == int(rank) {
						p.least--
					}
				} else if r.load < r.worker.maxLoad {
					n = r.load + r.worker.loadPenalty
					if n > mostRanked {
						n = mostRanked
					}
					if rank == notRanked {
						p.open++
					}
					loads[at] = byte(n)
					if n < p.least {
						p.least = n
					}
				}
			}
			if a.queued > 0 {
				// It leaves the replica's queue: see wholeQueue.
				now = ex.at
				if now == 0 {
					now = time.Now().UnixNano()
				}
				if a.streamed {
					r.queue -= a.queued
					r.waiting--
				} else {
					w = r.whole
					w.count--
					w.chars -= a.queued
					if ex.answered {
						if (now-w.at)/1000000*w.pace/1000+w.done < a.mark {
							w.done = a.mark // all that was sent before it is through
							w.at = now
						}
						if a.ahead >= paceQueue && now > a.at {
							if int64(a.ahead)*1000000000/(now-a.at) > w.pace {
								w.pace += w.pace / paceUp
							} else if w.pace > leastPace {
								w.pace -= w.pace / paceDown
							}
						}
					}
				}
				a.queued = 0
			}
			if op == opEnd && ex.answered && ex.charges == nil && !r.draining && r.breaker.state == breakerClosed {
				r.breaker.failures = 0
				took = ex.firstByte
				if took > 0 {
					h = r.first
					if a.why == reasonHit {
						h = r.hitFirst
					}
					h.counts[sort.SearchFloat64s(firstByteNanos, float64(took))]++
					h.sum += took
				}
				if ex.tail != nil && len(p.tails) < mostTails {
					p.tails = append(p.tails, ex.tail)
					p.tailed = append(p.tailed, a)
				}
				state.locked = false
				p.mu.Unlock()
				ex.done <- 1
				if ex.long {
					return // its next job may be hours off
				}
				continue
			}
			now = ex.at
			if now == 0 {
				now = time.Now().UnixNano()
			}
			keyed = a.stamp > 0 && !ex.answered // what was taught has to be found again
		} else {
			keyed = true
		}

		if quick {
			// first is the place of one of the least loaded: the first one from a place by chance on. Two native searches do it
			// for any number of replicas.
			start = int(seed>>33) % len(loads)
			first = bytes.IndexByte(loads[start:], byte(least))
			if first >= 0 {
				first += start
			} else {
				first = bytes.IndexByte(loads[:start], byte(least))
				for first < 0 && least < mostRanked {
					least++
					first = bytes.IndexByte(loads[start:], byte(least))
					if first >= 0 {
						first += start
					} else {
						first = bytes.IndexByte(loads[:start], byte(least))
					}
				}
				p.least = least
			}
		} else if op == opChoose && !costs {
			// Candidates of the best grade there is: 0 = fine, 1 = asked to be left alone, 2 = breaker open. The last grade
			// counts only when no breaker of all that serve the model lets a request through. in.least is found on the way, one of the
			// least loaded by chance.
			cs = p.scratch[:0]
			grade = 2
			full = false
			allowed = false
			for _, r = range p.replicas {
				r.slot = -1
				if !r.up || (only != "" && !r.lists(only)) {
					continue
				}
				g = 0
				if r.breaker.state != breakerClosed && !r.breaker.allows(now) {
					g = 2
				} else {
					allowed = true
					if r.pushedUntil > now {
						g = 1
					}
				}
				if g > grade || (ex.tried != nil && wasTried(ex, r)) {
					continue
				}
				if routed && r.load >= r.worker.maxLoad {
					full = true
					continue
				}
				if g < grade {
					for i = range cs {
						cs[i].replica.slot = -1
					}
					grade = g
					cs = cs[:0]
				}
				n = len(cs)
				r.slot = n
				load = r.load + r.worker.loadPenalty
				if n == 0 || load < cs[in.least].load {
					in.least = n
					ties = 1
				} else if load == cs[in.least].load {
					ties++
					seed = seed*6364136223846793005 + 1442695040888963407
					if int(seed>>33)%ties == 0 {
						in.least = n
					}
				}
				cs = append(cs, candidate{replica: r, load: load})
			}
			p.scratch = cs
			p.seed = seed
			if len(cs) == 0 || (grade == 2 && allowed) {
				ex.chosen = nil
				ex.refusal = refusedNone
				if full {
					ex.refusal = refusedFull
				}
				if ex.explained != nil {
					explain(p, ex, cs, -1, "")
				}
				state.locked = false
				p.mu.Unlock()
				ex.done <- 1
				if ex.long {
					return
				}
				continue
			}
		}

		// Find: walk the prompt down the tree. path and depth are the nodes that match in full and where each ends, part the
		// one whose label the rest of the prompt starts with in part.
		if op < opInsert {
			if keyed {
				path = t.path[:0]
				depth = t.depth[:0]
				part = nil
				match = 0
				end = len(key)
				nd = t.roots[ex.space]
				if nd != nil {
					path = append(path, nd)
					depth = append(depth, 0)
				} else {
					end = 0
				}
				for match < end {
					i = strings.IndexByte(nd.firsts, key[match])
					if i < 0 {
						break
					}
					nd = nd.kids[i]
					label = nd.label
					to = match + len(label)
					if to <= end && key[match:to] == label {
						match = to
						path = append(path, nd)
						depth = append(depth, to)
						continue
					}
					// Bisect the common prefix: comparing slices is native, a loop over bytes is not.
					low = 1
					high = len(label)
					if to > end {
						high = end - match
					}
					for low < high {
						mid = (low + high + 1) / 2
						if label[low:mid] == key[match+low:match+mid] {
							low = mid
						} else {
							high = mid - 1
						}
					}
					part = nd
					match += low
					break
				}
				t.path = path
				t.depth = depth
				t.part = part
				t.match = match
			}
			if op != opChoose {
				if op != opFind {
					settleAttempt(p, ex, a, now)
				}
				state.locked = false
				p.mu.Unlock()
				ex.done <- 1
				if ex.long {
					return
				}
				continue
			}
		}

		if quick {
			// The least loaded holder of the longest match that a replica which can be chosen has.
			matched = 0
			i = len(path) - 1
			k = 0
			if keyed {
				if part != nil {
					nd = part
					k = match
					i++
				} else if i > 0 {
					nd = path[i]
					k = depth[i]
				}
			}
			for k > 0 {
				held = nd
				if nd.where != nil {
					// Many hold it: go up the loads until one does.
					low = least
					at = start
					to = len(loads)
					for matched == 0 && low < notRanked {
						j = bytes.IndexByte(loads[at:to], byte(low))
						if j >= 0 {
							at += j
							r = p.replicas[at]
							j = nd.where[r.id] - 1
							if j >= 0 && nd.claims[j].stamp-r.age.faded >= int64(k) {
								matched = k
								holder = at
							}
							at++
						} else if to > start && start > 0 {
							at = 0
							to = start
						} else {
							low++
							at = start
							to = len(loads)
						}
					}
				} else {
					for _, one = range nd.claims {
						r = p.byID[one.id]
						if r == nil {
							continue
						}
						n = r.place
						rank = loads[n]
						if rank == notRanked || one.stamp-r.age.faded < int64(k) {
							continue
						}
						if matched == 0 || rank < top {
							matched = k
							holder = n
							top = rank
							ties = 1
						} else if rank == top {
							ties++
							seed = seed*6364136223846793005 + 1442695040888963407
							if int(seed>>33)%ties == 0 {
								holder = n
							}
						}
					}
				}
				if matched > 0 {
					break
				}
				i--
				k = 0
				if i > 0 {
					nd = path[i]
					k = depth[i]
				}
			}

			// The rule of threshold: see there. A fuzz test holds the two together.
			i = first
			n = p.open - 1
			low = least
			why = reasonMiss
			if n == 0 {
				why = reasonOnlyOne
			} else if key == "" {
				why = reasonNoText
			} else if matched > 0 && (matched >= set.matchAbs || float64(matched) >= set.threshold*float64(len(key))) {
				load = int(loads[holder])
				if load == mostRanked {
					// It stands for more.
					r = p.replicas[holder]
					load = r.load + r.worker.loadPenalty
					r = p.replicas[i]
					low = r.load + r.worker.loadPenalty
				}
				why = reasonOverloaded
				if load <= low+set.balanceAbs || float64(load) <= set.balanceRel*float64(low) {
					i = holder
					why = reasonHit
				}
			}
			r = p.replicas[i]
			k = 0
			if matched > 0 {
				if i == holder {
					k = matched
				} else if held.claimed(r.id, r.age.faded+int64(matched)) {
					k = matched
				}
			}
		} else if costs {
			// The rule of cost: see there. A test holds the two together. First what each replica is known to hold: up the path,
			// where claims of more and more of them are found. As many claims as one step down are the same ones, and worth a
			// look only if one of them had faded there.
			p.turn++
			p.known = p.known[:0]
			in.matched = 0
			i = len(t.path) - 1
			nd = t.part
			k = t.match
			if nd == nil && i >= 0 {
				nd = t.path[i]
				i--
			}
			low = 0
			for k > 0 && len(p.known) < p.open {
				if len(nd.claims) != low {
					low = len(nd.claims)
					for j = range nd.claims {
						r = p.byID[nd.claims[j].id]
						if r == nil || p.loads[r.place] == notRanked || r.turn == p.turn {
							continue
						}
						if nd.claims[j].stamp-r.age.faded < int64(k) {
							low = 0
							continue
						}
						r.turn = p.turn
						r.matched = k
						p.known = append(p.known, r)
					}
					if in.matched == 0 && len(p.known) > 0 {
						in.matched = k
						in.holders = len(p.known)
						held = nd
					}
				}
				k = 0
				if i > 0 {
					nd = t.path[i]
					k = t.depth[i]
					i--
				}
			}

			// What would have to be computed anywhere before the first token, were nothing known: the least of it.
			n = 0
			i = -1
			for j, r = range p.replicas {
				if p.loads[j] == notRanked {
					continue
				}
				load = r.queue + runningCost*(r.load+r.worker.loadPenalty-r.waiting)
				n += r.waiting
				w = r.whole
				if w.count > 0 {
					k = int(w.sent - w.done - (now-w.at)/1000000*w.pace/1000)
					if k > 0 {
						load += k
						k = w.count * k / w.chars
						n += k
						load -= runningCost * k
					}
				}
				r.price = load
				if i < 0 || load < low {
					i = j
					low = load
					ties = 1
				} else if load == low {
					ties++
					seed = seed*6364136223846793005 + 1442695040888963407
					if int(seed>>33)%ties == 0 {
						i = j
					}
				}
			}
			pressure = float64(n) / float64(p.open)

			// What is known saves its own length, and on the holders of the longest match what it would cost to give that up.
			if in.matched > 0 {
				worth = 1 + pressure
				n = int(held.heat >> uint32(int32(now/heatSpan)-held.warm))
				k = heatUnit * (in.holders + 1)
				if n > k {
					k = p.crowd(in, now)
					if n > k {
						worth = worth * float64(k) / float64(n)
					}
				}
				worth++
				for _, r = range p.known {
					load = r.price - int(worth*float64(r.matched))
					r.price = load
					if load < low {
						i = r.place
						low = load
					}
				}
			}

			// The place of a conversation of which nothing is known but a beginning that many share.
			why = reasonHit
			j = len(t.path) - 1
			for j >= 0 && len(t.path[j].kids) < manyKids && t.depth[j]+placeNear >= in.matched {
				j--
			}
			n = -1
			if j >= 0 && len(t.path[j].kids) >= manyKids && t.depth[j]+placeNear >= in.matched {
				n = t.depth[j]
				if n > in.matched {
					n = in.matched
				}
			} else if in.matched <= placeNear {
				n = 0
			}
			if n >= 0 {
				why = reasonPlaced
				n = n / placeGrain * placeGrain
				to = n + 2*placeGrain
				if to > len(key) {
					to = len(key)
				}
				place = uint64(crc32.ChecksumIEEE([]byte(key[n:to])))
				best = 0
				for j, r = range p.replicas {
					if p.loads[j] == notRanked {
						continue
					}
					hash = (r.worker.seat ^ place) * 2685821657736338717
					hash = (hash ^ hash>>32) * 6364136223846793005
					hash ^= hash >> 29
					if hash >= best {
						best = hash
						k = j
					}
				}
				if k != i {
					n = runningCost
					r = p.replicas[i]
					if r.turn == p.turn {
						// Little that is known elsewhere does not count.
						j = int(worth * float64(r.matched))
						r = p.replicas[k]
						if r.turn == p.turn {
							j -= int(worth * float64(r.matched))
						}
						if j <= placeSlack {
							n += j
						}
					}
					own = p.replicas[k].age
					if own.held-p.replicas[i].age.held > own.room/fillGrain && own.room > 0 {
						n = -1
					}
					if ex.set.instances > 1 {
						n = len(key) / 4
						if n < placeSlack {
							n = placeSlack
						}
						n += int(float64(n) * pressure)
					}
					if p.replicas[k].price-low > n {
						why = reasonMiss
						k = i
					}
					i = k
				}
			}
			if ex.set.logDecisions {
				for bytes.IndexByte(p.loads, byte(p.least)) < 0 {
					p.least++
				}
			}
			r = p.replicas[i]
			n = p.open - 1
			low = p.least
			k = 0
			if r.turn == p.turn {
				k = r.matched
			}
			if n == 0 {
				why = reasonOnlyOne
			} else if why == reasonHit && k < in.matched {
				why = reasonOverloaded
			}
		} else if op == opChoose {
			p.turn++
			p.seed = p.seed*6364136223846793005 + 1442695040888963407
			in.total = len(key)
			in.turn = p.turn
			in.draw = int(p.seed >> 33)
			in.set = ex.set
			if routed {
				describeCandidates(p, ex, now)
				i, why = ex.policy(cs, in)
			} else {
				i = in.least
				why = reasonPassthrough
			}
			if ex.explained != nil {
				explain(p, ex, cs, i, why)
				p.turn--
				state.locked = false
				p.mu.Unlock()
				ex.done <- 1
				return // rare, so what it leaves would stay: see keptLength
			}
			r = cs[i].replica
			n = len(cs) - 1
			low = cs[in.least].load
			k = cs[i].matched
		}

		if op == opChoose {
			if !quick {
				matched = in.matched
				if ex.tried != nil {
					why = reasonRetry
					p.retries++
				}
			}
			id = r.id
			owner = r.worker
			r.load++
			p.running++
			if r.ranked {
				at = r.place
				rank = loads[at]
				if rank < notRanked {
					if r.load >= owner.maxLoad {
						loads[at] = notRanked
						p.open--
						if p.open == 0 {
							p.least = mostRanked
						}
					} else if rank < mostRanked {
						loads[at]++
					}
				}
			}
			a = &attempt{replica: r, worker: owner, id: id, life: r.life, load: r.load, others: n, known: matched, matched: k,
				why: why, at: now, least: low, total: len(key)}
			if r.breaker.state != breakerClosed {
				a.probe = r.breaker.begin(now)
				p.rankedUntil = 0
			}
			if set.costs && routed {
				// It joins the replica's queue.
				n = len(key) - k
				if n < 1 {
					n = 1
				}
				a.queued = n
				a.streamed = ex.streamed
				if a.streamed {
					r.queue += n
					r.waiting++
				} else {
					w = r.whole
					left = w.sent - w.done - (now-w.at)/1000000*w.pace/1000
					if w.count == 0 || left < 0 {
						left = 0
					}
					w.sent += int64(n)
					w.done = w.sent - int64(n) - left
					w.at = now
					w.count++
					w.chars += n
					a.mark = w.sent
					a.ahead = r.queue + n + int(left)
				}
			}
			own = r.age
			ex.chosen = a
			if ex.tried == nil {
				ex.attempt = a
				ex.proxy = owner.proxy
				if ex.streamed {
					ex.proxy = owner.streams
				}
				if owner.headers != nil {
					ex.dressed = true
				}
				if set.peerHeader {
					ex.peer = owner.peer
				}
			} else {
				ex.tried = append(ex.tried, r.life)
			}
			idle = now - p.asked
			p.asked = now
			if (p.running <= fewRunning || idle > longPause) && !ex.waits {
				ex.calm = true
				if keyed && !set.logDecisions {
					ex.took = time.Since(ex.begun)
					state.locked = false
					learnJobs <- ex
					ex.done <- 1
					if ex.long {
						return
					}
					continue
				}
			}
		} else if op == opLearn {
			id = a.id
			own = r.age
			k = a.matched
			path = t.path
			depth = t.depth
			part = t.part
			match = t.match
		} else {
			a = ex.chosen
			id = a.id
			own = t.ageOf(id)
			k = 0
			path = t.path
			depth = t.depth
			part = t.part
			match = t.match
		}

		// Insert: claim the path for the replica and hang what is new of the prompt on its end.
		if keyed {
			before = -1
			fresh = 0

			// What the replica holds of it, k characters, moves to the newest end of its line: see age.
			if own.faded >= 0 {
				k = 0
				left = 0
				nd = part
				n = match
				j = len(path) - 1
				if nd == nil && j > 0 {
					nd = path[j]
					j--
				}
				for nd != nil {
					to = depth[j]
					if nd.where != nil {
						i = nd.where[id] - 1
					} else {
						i = len(nd.claims) - 1
						for i >= 0 && nd.claims[i].id != id {
							i--
						}
					}
					if i >= 0 {
						stamp = nd.claims[i].stamp
						if stamp-own.faded >= int64(n) {
							if k == 0 {
								k = n
							}
							if own.room > 0 {
								if stamp != left {
									left = stamp
									mid = sort.SearchFloat64s(own.starts, float64(stamp)) - 1
								}
								own.counts[mid] -= int64(n - to)
							}
						}
					}
					nd = nil
					if j > 0 {
						nd = path[j]
						n = to
						j--
					}
				}
			}
			if own.room > 0 {
				i = len(own.counts) - 1
				if own.counts[i]+int64(len(key)) > own.room/spanParts && own.starts[i] < float64(own.clock) {
					if i >= mostSpans {
						own.join()
					}
					own.starts = append(own.starts, float64(own.clock))
					own.counts = append(own.counts, 0)
					i = len(own.counts) - 1
				}
				own.counts[i] += int64(len(key))
			}
			own.clock += int64(len(key))
			stamp = own.clock
			if len(path) == 0 {
				t.addRoot(ex.space)
				path = t.path
				depth = t.depth
			}
			if part != nil {
				path = append(path, t.split(part, match-depth[len(depth)-1]))
				depth = append(depth, match)
			}
			for j = range path { // not its values: see CONTRIBUTING.md
				nd = path[j]
				to = depth[j]
				if nd.where != nil {
					i = nd.where[id] - 1
					if i >= 0 {
						nd.claims[i].stamp = stamp
						before = to
					}
				} else {
					for i, one = range nd.claims {
						if one.id == id {
							nd.claims[i].stamp = stamp
							before = to
							break
						}
					}
				}
				if before < to {
					nd.claims = append(nd.claims, claim{id: id, stamp: stamp})
					if nd.where != nil || len(nd.claims) > manyHolders {
						nd.index()
					}
					fresh += len(nd.label)
				}
			}
			rest = key[match:]
			n = len(rest)
			if n > t.maxBytes/8 {
				n = t.maxBytes / 8
				rest = rest[:n]
			}
			n += nodeBytes
			if nd.listed {
				// Out of the list: it gets a kid, or it goes to the newest end.
				if nd.newer != nil {
					nd.newer.older = nd.older
				} else {
					t.newest = nd.older
				}
				if nd.older != nil {
					nd.older.newer = nd.newer
				} else {
					t.oldest = nd.newer
				}
				nd.newer = nil
				nd.older = nil
				nd.listed = false
			}
			if rest != "" && len(t.path) < maxDepth {
				full = t.nodes >= t.maxNodes || t.bytes+n > t.maxBytes
				if full {
					full = !t.makeRoom(n, nd)
				}
				if !full {
					// A copy, so that the nd does not keep the whole prompt alive.
					leaf = &node{label: strings.Clone(rest), parent: nd, claims: []claim{{id: id, stamp: stamp}}}
					nd.kids = append(nd.kids, leaf)
					nd.firsts += byteTexts[rest[0]] // a part of rest, joined to nothing, would keep the whole prompt
					t.nodes++
					t.bytes += n
					fresh += len(rest)
					nd = leaf
				}
			}
			t.clock++
			nd.used = t.clock
			if fresh > 0 {
				t.claimed[id] += fresh
			}
			if before > k {
				if own.faded >= 0 {
					a.faded = before + 1
					before = k
				} else {
					k = before
				}
			}
			own.held += int64(len(key) - k)
			if own.held > own.room && own.room > 0 {
				own.fade()
			}
			if ex.set.costs {
				// The prompt's nodes have become more popular.
				span = int32(now / heatSpan)
				if t.warm != span {
					t.heat >>= uint32(span - t.warm)
					t.warm = span
				}
				if t.heat < heatMost {
					t.heat += heatUnit
				}
				leaf = nd
				for leaf != nil {
					if leaf.warm != span {
						leaf.heat >>= uint32(span - leaf.warm)
						leaf.warm = span
					}
					if leaf.heat < heatMost {
						leaf.heat += heatUnit
					}
					leaf = leaf.parent
				}
			}
			if len(nd.kids) == 0 {
				if nd.parent == nil {
					t.removeRoot(nd)
				} else {
					held = t.newest
					nd.older = held
					if held != nil {
						held.newer = nd
					} else {
						t.oldest = nd
					}
					t.newest = nd
					nd.listed = true
				}
			}
			if part != nil && (t.nodes > t.maxNodes || t.bytes > t.maxBytes) {
				t.makeRoom(0, nil) // a split needs room too
			}
			a.stamp = stamp
			a.before = before
		}
		if op != opInsert {
			if op == opChoose {
				took = time.Since(ex.begun)
				ex.took = took
			}
			r.reasons[a.why]++
			p.decided++
			p.last[p.decided%lastDecisions] = a
			if routed {
				p.deciding.counts[sort.SearchFloat64s(decisionNanos, float64(took))]++
				p.deciding.sum += took
			}
			if keyed {
				n = len(key)
				k = a.known
				sums = p.prompts
				sums.counts[(10*k+n-1)/n]++
				sums.thousandth += int64(1000 * k / n)
				sums.characters += int64(n)
				sums.known += int64(k)
				sums.matched += int64(a.matched)
			}
		}
		state.locked = false
		p.mu.Unlock()
		if op != opLearn {
			if op == opChoose && set.logDecisions && ex.attempt == a {
				logDecision(ex)
			}
			ex.done <- 1
		}
		if ex.long {
			return
		}
	}
}
