package chats

import "strings"

// Prompts and questions are made of these, one as often as the other: so words are as long as English ones are, and 4 characters
// make a token.
var particles = strings.Fields(`
	the of and a to in is you that it he was for on are as with his they at be this have from or one had by but not what
	all were we when your can said there use an each which she do how their if will up other out many then them these so
	some her would make like him into time has look two more go see no way could my than first been who its now find long
	down day did get come made may part`)

var terms = strings.Fields(`
	about above account across action after again against agree allow almost along already also always amount answer
	appear apply area arrive article aside assume attach average avoid balance base because become before begin behind
	believe below benefit beside better between beyond board border bring broad build business buyer calculate call
	cancel capital careful carry cause center certain change charge check choose circle claim clean clear close collect
	color combine common company compare complete concern condition confirm consider contain continue contract control
	copy correct cost count country cover create credit current customer daily date decide deep default deliver depend
	describe design detail differ direct discuss distance document double draft early easy effect eight either employ
	empty enough enter equal error escape evening event every exact example except expect explain extra fair familiar
	favor field figure final finish first follow force foreign forget formal forward found free frequent friend future
	garden general gentle given goal great ground group guess handle happen hardly heavy helpful history hold honest
	however hundred ideal imagine improve include increase indeed inform instead interest invoice issue item join
	journey judge keep kind kitchen knowledge language large later law learn least leave length letter level likely
	limit listen little local longer manage market matter maybe mean measure member message method middle minute mirror
	mistake modern moment month morning mountain narrow nature near need neither never normal notice number object
	observe obtain offer office often open opinion orange order origin other outside owner package paper partner pass
	patient pattern people perhaps period person picture place plain plan please point policy polite possible prefer
	prepare present price private problem process produce product promise proper protect prove public purpose quality
	quarter question quick quiet rather reach ready reason receive recent record reduce refer refund regular remain
	remember repair repeat reply report request require reserve result return review right river safe sample save
	schedule science search season second secret section seem send sense separate series serious service settle seven
	shape share short should silver similar simple since single small social solid sometimes soon sound source special
	speed spend standard start state station still stone store story street strong study subject sudden suggest summer
	supply support sure surface surprise system table taken task teach thank their there thing think though thousand
	through ticket title today together tomorrow total touch toward travel treat true trust twenty under understand
	unless until usual value various version very village visit voice wait warm watch water weather welcome whether
	while whole window winter within without wonder word worker worth write yellow yesterday young`)
